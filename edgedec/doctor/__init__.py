"""Facts of this machine and installation, for ``edgedec doctor`` and ``edgedec devices``."""
