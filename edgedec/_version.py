"""The version, where it is read without importing anything else."""

__version__ = "0.2.0"
