"""Drafters: one file each; copy ``lookup.py`` to write your own."""
