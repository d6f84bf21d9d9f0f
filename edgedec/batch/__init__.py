"""Decodes many prompts from one file into another."""
