"""``python -m edgedec``, and the entry point of the command ``edgedec``."""

from __future__ import annotations

import faulthandler
import os
import sys
from contextlib import suppress

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def replace_closed_streams() -> None:
    """Replace standard streams that the caller closed, as a shell does for ``>&-``, by empty ones.

    Without them Python has None there, and the next file that is opened takes their number.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def main() -> None:
    """Run the command line; an interrupt during its import also ends in one line."""
    replace_closed_streams()
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
