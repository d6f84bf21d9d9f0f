"""Sizes caches to fit in memory."""
