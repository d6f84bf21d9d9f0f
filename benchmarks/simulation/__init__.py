"""Simulates plans on other machines, described by device cards."""
