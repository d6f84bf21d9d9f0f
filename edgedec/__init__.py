"""Lossless speculative decoding on small devices: public names, nothing else."""

__version__ = "0.1.0"

__all__ = ["__version__"]
