"""Estimates memory, sizes caches to fit in it, and holds decoding to a limit."""
