"""What a decoder is: one file an architecture, found by its `model_type`."""
