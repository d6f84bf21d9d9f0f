"""Samples single mutations of the code and runs the tests that cover them: survivors are listed.

    python tools/mutants.py --count 100 --paths edgedec/decoding runtimes edgedec/planning export

All is done in a throw-away copy of the current folder. build/mutants keeps which test runs which
lines, by test file (made again when it, or code that it runs, has changed), and a line of JSON for
each mutation: a second run with the same seed goes on where the first one ended (remove
records.jsonl to judge all again).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import coverage
import pytest
from mutations import Mutation, mutated, mutations

PATHS = ["edgedec/decoding", "runtimes", "edgedec/planning", "edgedec/overlap", "export"]
TESTS = ["tests/unit", "tests/property", "tests/contract", "tests/cli", "tests/golden"]
_LEFT_OUT = (".*", "__pycache__", "build", "dist", "scratch", "bench-out", "*.egg-info")
_MAP = "MUTANTS_MAP"  # the file that the plugin below writes
_COPY = "copy-of-the-tree"
_LIMIT_S = 1800.0  # seconds of one run of pytest, on a machine that does other things as well


# -- which test runs which lines ----------------------------------------------------------------


class Contexts:
    """A plugin of pytest that tells coverage.py which test runs."""

    def __init__(self, out: str) -> None:
        self._coverage = coverage.Coverage(out, config_file=False, source=["."], omit=["tests/*"])
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()


def pytest_configure(config: pytest.Config) -> None:
    """Begin before any of the sources is imported."""
    config.pluginmanager.register(Contexts(os.environ[_MAP]))


def mapped(test: str, root: Path, tree: Path, out: Path) -> coverage.CoverageData:
    """Return which lines a test file runs, made again if it or what it runs is newer."""
    found = coverage.CoverageData(str(out))
    found.read()
    files = [root / test, *(root / _inside(file) for file in found.measured_files())]
    if out.exists() and all(f.is_file() and f.stat().st_mtime < out.stat().st_mtime for f in files):
        return found
    out.unlink(missing_ok=True)
    ended = run(tree, ["-p", Path(__file__).stem, test], **{_MAP: str(out)})
    print(f"map  {test}: {ended or 'passed'}", flush=True)
    (again := coverage.CoverageData(str(out))).read()
    return again


def running(mutation: Mutation, maps: list[coverage.CoverageData]) -> list[str]:
    """Return the tests that run a line of a mutation."""
    first, last = mutation.lines
    ran: set[str] = set()
    for found in maps:
        for file in found.measured_files():
            if _inside(file) == mutation.path:
                lines = found.contexts_by_lineno(file).items()
                ran.update(*(tests for line, tests in lines if first <= line <= last))
    return sorted(ran - {""})


def _inside(file: str) -> str:
    """Return a path in the copy of the tree, relative to it."""
    return file.rpartition(f"/{_COPY}/")[2]


# -- runs ---------------------------------------------------------------------------------------


def run(tree: Path, arguments: list[str], **more: str) -> str | None:
    """Return the first test that fails, ``slow`` or ``broken``; None if all pass."""
    path = os.pathsep.join([str(tree), str(Path(__file__).parent)])
    environment = {**os.environ, **more, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-m", "not slow and not statistical"]  # those of the full run too
    # Into a file: what a test leaves running would keep a pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [*command, "-p", "no:xdist", *arguments], cwd=tree, env=environment, stdout=output,
            stdin=subprocess.DEVNULL, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            return "slow"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it started
            process.wait()
        output.seek(0)
        failed = [line for line in output if line.startswith(("FAILED ", "ERROR "))]
    if code == 0:
        return None
    return failed[0].split(" ", 1)[1].partition(" - ")[0].strip() if failed else "broken"


def judge(tree: Path, mutation: Mutation, tests: list[str]) -> tuple[str, str]:
    """Return ``killed``, ``survived``, ``uncovered`` or ``unknown``, and the test that failed."""
    if not tests:
        return "uncovered", ""
    file, names = tree / mutation.path, tree.parent / "tests.txt"
    source = file.read_text("utf-8")
    names.write_text("\n".join(tests), "utf-8")
    file.write_text(mutated(source, mutation.number), "utf-8")
    try:
        failed = run(tree, ["-x", f"@{names}"])
    finally:
        file.write_text(source, "utf-8")
    if failed is None:
        return "survived", ""
    # A test that fails without the mutation as well, by chance or under load, says nothing.
    again = [failed] if failed in tests else ["-x", f"@{names}"]
    return ("killed" if run(tree, again) is None else "unknown"), failed


def main() -> None:
    """Map, sample, run, summarise."""
    from edgedec._support.json_lines import JsonLines  # not by the plugin, which maps edgedec

    options, root = _options(), Path.cwd().resolve()
    out = root / "build" / "mutants"
    out.mkdir(parents=True, exist_ok=True)
    files = _files(root, options.paths, "*.py")
    sample = [one for file in files for one in mutations(file, (root / file).read_text("utf-8"))]
    random.Random(options.seed).shuffle(sample)
    sample = sample[: options.count]  # in an order that only the seed decides
    known = {}

    def earlier(record: dict | None, where: str) -> None:
        if record is None or "name" not in record:
            raise SystemExit(f"{where}: not a record: delete the line, or the file")
        known[record["name"]] = record

    records = JsonLines(out / "records.jsonl", "name", earlier)
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder).resolve() / _COPY
        shutil.copytree(root, tree, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        maps = [
            mapped(test, root, tree, out / f"{test.replace('/', '.')}.coverage")
            for test in _files(root, options.tests, "test_*.py")
        ]
        for number, one in enumerate(sample, 1):
            if one.name not in known:
                tests = running(one, maps)
                random.Random(one.name).shuffle(tests)
                verdict, why = judge(tree, one, tests[: options.most])
                record = {"name": one.name, "verdict": verdict, "why": why, "tests": len(tests)}
                known[one.name] = record | one._asdict()
                records.add(known[one.name])
            print(f"{number:4}/{len(sample)}  {_line(known[one.name])}", flush=True)
    records.close()
    found = [known[one.name] for one in sample]
    counts = Counter(record["verdict"] for record in found)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    print(*(f"  {_line(one)}" for one in found if one["verdict"] != "killed"), sep="\n")


def _line(record: dict) -> str:
    place = f"{record['path']}:{record['line']}"
    return f"{record['verdict']:9} {place}  {record['before']}  ->  {record['after']}"


def _files(root: Path, places: list[str], pattern: str) -> list[str]:
    """Return the files in these folders, or these files, relative to the root."""
    found: list[Path] = []
    for place in places:
        if not (root / place).exists():
            raise SystemExit(f"{place} is not there: give paths relative to {root}")
        found += sorted((root / place).rglob(pattern)) or [root / place]
    return [str(file.relative_to(root)) for file in dict.fromkeys(found)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="mutations to sample")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--paths", nargs="+", default=PATHS, help="what to mutate")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what may notice")
    parser.add_argument("--most", type=int, default=200, help="tests to run for a mutation")
    return parser.parse_args()


if __name__ == "__main__":
    # Ended from outside it still ends the tests it runs, and takes its copy away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
