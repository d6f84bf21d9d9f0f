"""Options of a generation, the stream of its events, and its result."""
