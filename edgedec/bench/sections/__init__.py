"""Sections of ``make bench``: one file a promise that is measured, and what they need."""
