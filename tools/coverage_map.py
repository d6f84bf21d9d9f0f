"""A pytest plugin: which test runs which lines, and how long each takes.

    python -m pytest -p coverage_map --map-out FILE --map-root FOLDER tests/unit/text

Only tests that pass are in the map. What a fixture runs counts for the test that sets it up.
Lines that run in another process are not seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import coverage
import pytest


def digest(file: Path) -> str:
    """Return a digest of the file's contents."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


class Recorder:
    """Names the running test to coverage.py, and writes the map in the end."""

    def __init__(self, root: Path, out: Path) -> None:
        self._root, self._out = root, out
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, source=[str(root)], omit=[f"{root}/tests/*"]
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        began = perf_counter()
        result = yield
        self._seconds[item.nodeid] = round(perf_counter() - began, 3)
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # a skipped test finds nothing either
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        passed = {test: s for test, s in self._seconds.items() if test not in self._failed}
        lines: dict[str, dict[str, list[int]]] = {}
        for file in sorted(data.measured_files()):
            tests: dict[str, list[int]] = {}
            for line, contexts in sorted(data.contexts_by_lineno(file).items()):
                for test in contexts:
                    if test in passed:
                        tests.setdefault(test, []).append(line)
            if tests:
                lines[str(Path(file).relative_to(self._root))] = tests
        files = {*lines, *(test.split("::")[0] for test in self._seconds)}
        hashes = {file: digest(self._root / file) for file in sorted(files)}
        self._out.write_text(json.dumps({"hashes": hashes, "seconds": passed, "lines": lines}))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the sources' folder and the map."""
    parser.addoption("--map-out", type=Path, required=True)
    parser.addoption("--map-root", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Begin before any of the sources is imported."""
    root, out = config.getoption("--map-root"), config.getoption("--map-out")
    config.pluginmanager.register(Recorder(root.resolve(), out))
