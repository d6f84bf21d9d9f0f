"""From a path and options to an engine that is ready to decode."""
