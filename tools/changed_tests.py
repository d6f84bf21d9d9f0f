"""Run the tests of the files that changed: `make test-changed`.

python tools/changed_tests.py [--base COMMIT] [--list] [pytest's arguments]

Compares the working tree, new files included, with where it left COMMIT (the default is `main`);
tests/suites.py says which tests belong to a file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

import suites  # noqa: E402


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; what it complains about is the reader's to see."""
    command = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")


def changed(base: str) -> list[str]:
    """Return the files that differ from where this branch left ``base``, and new ones."""
    (start,) = filter(None, git("merge-base", base, "HEAD"))
    found = git("diff", "--name-only", start)
    return sorted({*found, *git("ls-files", "--others", "--exclude-standard")} - {""})


def main() -> int:
    """Run pytest on the tests of changed files; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--base", default="main", help="a branch or commit to compare with")
    parser.add_argument("--list", action="store_true", help="print the test files and run nothing")
    chosen, further = parser.parse_known_args()
    try:
        files = suites.tests_of(changed(chosen.base), REPOSITORY)
    except subprocess.CalledProcessError:
        print(f"git cannot compare with {chosen.base!r}: give --base COMMIT", file=sys.stderr)
        return 2
    if chosen.list or not files:
        print("\n".join(files) or f"nothing changed since {chosen.base} that has tests")
        return 0
    # Those that `make test` leaves out too.
    command = ["-m", "pytest", "-m", "not slow and not statistical", *further, *files]
    return subprocess.run([sys.executable, *command], cwd=REPOSITORY).returncode


if __name__ == "__main__":
    sys.exit(main())
