"""Compares edgedec with other runtimes: ``make peers``.

Each runtime is a file in ``edgedec.bench.peers`` and has an environment of its own. Every prompt is
decoded by every way of every peer in turn, each time in a fresh process.
"""
