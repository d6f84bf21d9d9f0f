"""Compares the headline figures of papers with the real engine in virtual time."""
