"""``python -m edgedec``, and what the installed command ``edgedec`` calls."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt while it is imported ends it in one line as well."""
    try:
        from edgedec.cli import main as commands
    except KeyboardInterrupt:
        sys.stderr.write("edgedec: error: interrupted\n")
        sys.exit(130)
    commands(prog_name="edgedec")


if __name__ == "__main__":
    main()
