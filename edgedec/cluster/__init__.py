"""Decodes a file of prompts on the machines of a Ray cluster, into one file of results."""
