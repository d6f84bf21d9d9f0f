"""Runs the same graphs on OpenVINO, whose kernels read four-bit weights once for many rows."""
