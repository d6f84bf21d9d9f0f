"""The same graphs on OpenVINO: its kernels read four-bit weights once for many rows."""
