"""``edgedec verify``: compares speculative with plain text, and explains differences."""
