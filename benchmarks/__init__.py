"""Benchmarks: every figure of the documentation, and the comparison with other runtimes.

They are not installed: run them from a clone, as ``python -m benchmarks [SECTION ...]``.
"""
