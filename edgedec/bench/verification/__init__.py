"""``edgedec verify``: compares speculative with plain decoding, and explains differences."""
