"""Fuzzes every reader of untrusted files with damaged inputs."""
