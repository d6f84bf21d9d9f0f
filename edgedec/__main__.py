"""``python -m edgedec``, and the entry point of the command ``edgedec``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt during its import also ends in one line."""
    try:
        from edgedec.cli import main as commands
    except KeyboardInterrupt:
        sys.stderr.write("edgedec: error: interrupted\n")
        sys.exit(130)
    commands(prog_name="edgedec")


if __name__ == "__main__":
    main()
