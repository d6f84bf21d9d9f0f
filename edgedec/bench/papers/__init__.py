"""Headline figures of papers, held against the real engine in virtual time."""
