"""Opens models from a path and options, and builds the engine that decodes with them."""
