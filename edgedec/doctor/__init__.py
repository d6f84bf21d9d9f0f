"""What this machine and this installation have, for ``edgedec doctor`` and ``edgedec devices``."""
