"""Builds wheel and source archive twice, here and in a copy elsewhere, and compares their bytes.

    python -m tools.build_twice dist

Needs the packages `build` and `setuptools`, and git. Exit code 1 if a byte differs.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def copy(to: Path, root: Path = ROOT) -> None:
    """Copy the files that git knows, links as links, and new ones that it does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listing.stdout.decode().split("\0")):
        source, target = root / name, to / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)


def build(sources: Path, out: Path) -> None:
    """Run ``python -m build`` for a folder of sources."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    subprocess.run(command, cwd=sources, check=True, stdout=subprocess.DEVNULL)


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder, by name."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
    }


def main() -> int:
    """Build twice; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder for the files; must be empty or missing")
    out: Path = parser.parse_args().out.resolve()
    if out.exists() and any(out.iterdir()):
        print(f"{out} has files: remove them first", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="edgedec-build.") as folder:
        one, two = Path(folder, "one"), Path(folder, "two")
        for clone in (one, two):
            copy(clone)
        build(one, out)
        build(two, two / "dist")
        first, second = digests(out), digests(two / "dist")
    for name, digest in first.items():
        print(f"{digest}  {name}  {(out / name).stat().st_size} bytes")
    if first != second:
        print("the second build has other bytes", file=sys.stderr)
    return int(first != second)


if __name__ == "__main__":
    sys.exit(main())
