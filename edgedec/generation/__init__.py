"""Options of a text, the stream of its events, and its result."""
