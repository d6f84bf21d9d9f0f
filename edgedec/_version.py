"""The version, where it is read without importing anything else."""

__version__ = "0.1.0"
