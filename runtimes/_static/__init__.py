"""Decoding over programs of fixed widths and a cache of fixed size, shared by runtimes."""
