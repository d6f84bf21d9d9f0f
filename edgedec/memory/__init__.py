"""Bytes and tokens: what fits into the memory that was given."""
