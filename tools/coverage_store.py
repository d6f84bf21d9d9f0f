"""Keeps which tests run which lines, in a file for each test file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from coverage_map import digest

# Seconds for one test file, under coverage and on a machine that does other things as well.
_LIMIT_S = 1800.0


class CoverageStore:
    """Results of ``coverage_map`` by test file, kept in a folder while they are up to date."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._seconds: dict[str, float] = {}
        self._lines: dict[str, dict[str, set[int]]] = defaultdict(dict)

    def stale(self, tests: list[str]) -> list[str]:
        """Test files without a map, or with one of other versions of the files it is about."""
        return [test for test in tests if not self._holds(self._load(test))]

    def make(self, test: str, tree: Path) -> str:
        """Run a test file in a copy of the tree; pytest's last line."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "coverage_map", "--map-root", str(tree)]
        command += ["--map-out", str(self._file(test)), test]
        path = os.pathsep.join([str(tree), str(Path(__file__).parent)])
        try:
            done = subprocess.run(
                command,
                cwd=tree,
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"left out: not done after {_LIMIT_S:.0f} s"
        return (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()[-1]

    def read(self, tests: list[str]) -> None:
        """Take over the maps of these test files."""
        for test in tests:
            known = self._load(test)
            self._seconds.update(known.get("seconds", {}))
            for path, runs in known.get("lines", {}).items():
                for name, lines in runs.items():
                    self._lines[path][name] = set(lines)

    def running(self, path: str, lines: tuple[int, int]) -> dict[str, float]:
        """Tests that run one of these lines of a file, and their seconds."""
        first, last = lines
        runs = self._lines.get(path, {})
        return {
            test: self._seconds[test]
            for test, ran in runs.items()
            if any(first <= line <= last for line in ran)
        }

    def _file(self, test: str) -> Path:
        return self._folder / (test.replace("/", ".") + ".json")

    def _load(self, test: str) -> dict:
        try:
            known: dict = json.loads(self._file(test).read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return known

    def _holds(self, known: dict) -> bool:
        files = known.get("hashes", {})
        return bool(files) and all(
            (self._root / file).is_file() and digest(self._root / file) == value
            for file, value in files.items()
        )


def pick(tests: Mapping[str, float], budget_s: float) -> dict[str, float]:
    """Tests to run, the quickest of each file in turn, until their seconds are used up.

    The first one is run however long it takes.
    """
    files: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for test, seconds in tests.items():
        files[test.split("::")[0]].append((seconds, test))
    order: list[tuple[int, float, str]] = []
    for group in files.values():
        order += [(turn, *entry) for turn, entry in enumerate(sorted(group))]
    chosen: dict[str, float] = {}
    for _, seconds, test in sorted(order):
        if not chosen or sum(chosen.values()) + seconds <= budget_s:
            chosen[test] = seconds
    return chosen
