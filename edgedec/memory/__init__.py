"""Estimates memory, sizes caches to fit in it, and enforces a memory limit while decoding."""
