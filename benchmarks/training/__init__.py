"""Drafters for a published target: its own answers, an EAGLE-3 head, and a draft cut from it.

Run as ``python -m benchmarks.training``; README.md beside this file has the commands. Only the
steps that train need torch. They use the networks of the demo pair's recipe (``demo``).
"""
