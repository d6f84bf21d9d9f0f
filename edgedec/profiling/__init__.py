"""Measures a pair on this machine: pass times at every place, and how often drafts are right."""
