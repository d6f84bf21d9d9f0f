"""Fuzzing with damaged inputs for every reader of untrusted files."""
