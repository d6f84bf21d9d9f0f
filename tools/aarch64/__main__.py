"""Runs edgedec on emulated ARM processors: `make aarch64`, `make aarch64-records`."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor

from tools.aarch64 import checks, kernels, rows
from tools.aarch64.debian import CPUS
from tools.aarch64.system import MissingError, System

RECORDERS = {"rows": rows.record, "kernels": kernels.record}


def main(words: list[str] | None = None) -> int:
    """Run what was asked for; return the exit code, 2 if the emulator cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tools.aarch64", description=__doc__)
    parser.add_argument("what", choices=("checks", *RECORDERS))
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=f"of the checks: {', '.join(CPUS)}")
    parser.add_argument("--quick", action="store_true", help="the first of the checks alone")
    asked = parser.parse_intermixed_args(words)
    if unknown := set(asked.cpus) - set(CPUS):
        parser.error(f"{', '.join(sorted(unknown))}: expected {' or '.join(CPUS)}")
    try:
        if record := RECORDERS.get(asked.what):
            for row in record():
                print(*row.values(), flush=True)
            return 0
        cpus = [CPUS[name] for name in asked.cpus or CPUS]
        chosen = checks.QUICK if asked.quick else checks.CHECKS
        systems = [System(cpu) for cpu in cpus]
        # Side by side, since most of a check runs on one core.
        with ThreadPoolExecutor() as pool:
            return int(any(list(pool.map(lambda one: checks.failed(one, chosen), systems))))
    except MissingError as error:
        print(f"no emulated ARM processor here: {error}", file=sys.stderr)
        return 2
    except rows.CountError as error:
        print(f"the emulated program failed: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
