"""Runs programs as on a processor of another class, with the kernels that runtimes choose there."""
