"""Adapters that compute: one file a runtime, found by name in the registry."""
