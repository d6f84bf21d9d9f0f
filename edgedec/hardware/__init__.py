"""The machine: devices, groups of cores, memory, other programs that compute."""
