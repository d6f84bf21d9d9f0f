"""Turns a profile into a plan: candidates, estimates, memory, the choice and its reasons."""
