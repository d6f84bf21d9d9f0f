"""Measures a pair on this machine: every place it can run at, and how well its drafts agree."""
