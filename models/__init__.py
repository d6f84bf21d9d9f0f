"""Descriptions of decoders: one file an architecture, found by its `model_type`."""
