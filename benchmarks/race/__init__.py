"""Compares edgedec with other runtimes: ``make peers``.

Each runtime is a file in ``benchmarks.peers`` and has an environment of its own. Every setting
of every peer decodes every prompt in turn, each time in a new process.
"""
