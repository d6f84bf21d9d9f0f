"""Helpers without a subject of their own: files, processes and records that are not trusted."""
