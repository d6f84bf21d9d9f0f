"""Runs a command as on a processor of another class: `make avx2`.

python -m tools.processor_class CLASS [-- COMMAND...]; without a command, the tests that depend on
kernels (tests/suites.py).
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys

from tests.suites import OF_KERNELS
from tools.processor_class.classes import CLASSES, ProcessorClass, features
from tools.processor_class.masking import REPOSITORY, MissingError, environment


def main(words: list[str] | None = None) -> int:
    """Run what was asked for; return 0 or 1 by its exit code, 2 if the class cannot be had here."""
    parser = argparse.ArgumentParser(prog="python -m tools.processor_class")
    parser.add_argument("processor", choices=CLASSES, metavar="CLASS", help=", ".join(CLASSES))
    parser.add_argument("command", nargs="*", help="a program and its arguments")
    asked = parser.parse_args(words)
    wanted = CLASSES[asked.processor]
    try:
        own = _environment(wanted)
    except MissingError as error:
        print(f"no processor of the class {wanted.name} here: {error}", file=sys.stderr)
        return 2
    command = asked.command or [sys.executable, "-m", "pytest", "-q", *OF_KERNELS]
    done = subprocess.run(command, env={**os.environ, **own}, cwd=REPOSITORY, check=False)
    # What a signal ended is no success, nor a class that is missing.
    return done.returncode if done.returncode in (0, 1) else 1


def _environment(wanted: ProcessorClass) -> dict[str, str]:
    """Return what a command needs in its environment; nothing on a processor of the class."""
    here = features()
    if platform.machine().lower() not in ("x86_64", "amd64") or not here:
        raise MissingError(f"this is {platform.system()} on {platform.machine()}, not x86-64 Linux")
    if missing := set(wanted.has) - set(here):
        raise MissingError(f"this one lacks {', '.join(sorted(missing))}")
    return environment(wanted) if set(wanted.lacks) & set(here) else {}


if __name__ == "__main__":
    sys.exit(main())
