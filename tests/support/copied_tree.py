"""A copy of the repository that a test changes, and programs in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TITLED = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def copied(folder: Path, *more: str) -> Path:
    """Copy what is installed, its import rules, and ``more`` files and folders; return the copy."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", ".*", "build")
    for name in ("edgedec", "export", "runtimes", "models", "pyproject.toml", *more):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def run(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a copy, whose modules and helpers of tests come first."""
    path = os.pathsep.join([str(copy), str(copy / "tests" / "support")])
    environment = {**os.environ, "PYTHONPATH": path, "MYPYPATH": str(copy)}
    return subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by the titles of its blocks."""
    return dict(_TITLED.findall(page.read_text("utf-8")))


def rules(copy: Path) -> subprocess.CompletedProcess[str]:
    """Check a copy's import rules."""
    return run(copy, "-c", "from importlinter.cli import lint_imports_command as f; f()")


def run_tests(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy."""
    return run(copy, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *words)


def extended(copy: Path, page: Path) -> list[str]:
    """Add a page's files to a copy, where none of them may be; return their paths."""
    files = files_of(page)
    for name, code in files.items():
        assert not (copy / name).exists()
        (copy / name).write_text(code, "utf-8")
    return list(files)
