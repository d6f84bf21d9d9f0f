"""Describes the machine: devices, clusters of cores, memory, and load from other programs."""
