"""Runs the real loop in virtual time, on recorded texts."""
