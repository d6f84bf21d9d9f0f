"""Adapters of runtimes: one module or package each, found by name in the registry."""
