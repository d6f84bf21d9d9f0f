"""Adapters that compute: one module or package a runtime, found by name in the registry."""
