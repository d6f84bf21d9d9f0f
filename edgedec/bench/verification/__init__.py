"""``edgedec verify``: compares speculative with plain texts, and explains differences."""
