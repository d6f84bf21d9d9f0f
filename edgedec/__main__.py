"""``python -m edgedec``, and the entry point of the command ``edgedec``."""

from __future__ import annotations

import faulthandler
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line; an interrupt during its import also ends in one line."""
    # Mapped weights whose file shrinks in the middle of a pass end the process: it says where.
    with suppress(OSError, RuntimeError, ValueError):  # there is no standard error
        faulthandler.enable()
    if sys.maxsize < 2**32:
        sys.stderr.write(
            "edgedec: error: this Python has 32 bits, for which no runtime is built: install a"
            " 64-bit system (`getconf LONG_BIT` says 64), and edgedec there\n"
        )
        sys.exit(2)
    try:
        from edgedec.cli import main as commands
    except KeyboardInterrupt:
        sys.stderr.write("edgedec: error: interrupted\n")
        sys.exit(130)
    commands(prog_name="edgedec")


if __name__ == "__main__":
    main()
