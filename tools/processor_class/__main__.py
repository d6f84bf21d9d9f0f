"""Runs a command as on a processor of another class: `make avx2`.

python -m tools.processor_class CLASS [-- COMMAND...]; without a command, the tests that depend on
kernels (tests/suites.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tests.suites import OF_KERNELS
from tools.processor_class.classes import CLASSES
from tools.processor_class.masking import REPOSITORY, MissingError, seen_as

_PYTEST = ("-q", "-p", "no:cacheprovider", "-n", "auto", "--maxprocesses", "4")


def main(words: list[str] | None = None) -> int:
    """Run what was asked for; return 0 or 1 by its exit code, 2 if the class cannot be had here."""
    parser = argparse.ArgumentParser(prog="python -m tools.processor_class")
    parser.add_argument("processor", choices=CLASSES, metavar="CLASS", help=", ".join(CLASSES))
    parser.add_argument("command", nargs="*", help="a program and its arguments")
    asked = parser.parse_args(words)
    wanted = CLASSES[asked.processor]
    try:
        own = seen_as(wanted)
    except MissingError as error:
        print(f"no processor of the class {wanted.name} here: {error}", file=sys.stderr)
        return 2
    command = asked.command or [sys.executable, "-m", "pytest", *_PYTEST, *OF_KERNELS]
    done = subprocess.run(command, env={**os.environ, **own}, cwd=REPOSITORY, check=False)
    # What a signal ended is no success, nor a class that is missing.
    return done.returncode if done.returncode in (0, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
