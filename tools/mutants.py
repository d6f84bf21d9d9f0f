"""Samples single mutations of the code and runs the tests that cover them: survivors are listed.

    python tools/mutants.py --count 100 --paths edgedec/decoding runtimes edgedec/planning export

Each mutation is made in a throw-away copy of the tree, never in the tree itself. What was found
is kept in ``--out``: a map of which test runs which lines (made once for each test file, again
when the file or the code it runs has changed), and a line of JSON for each mutation. A second
run with the same seed goes on where the first one ended. On demand, not in CI: minutes to hours.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from coverage_store import CoverageStore, pick
from mutant_runs import Outcome, Runner
from mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[1]
PATHS = ["edgedec/decoding", "runtimes", "edgedec/planning", "edgedec/overlap", "export"]
TESTS = ["tests/unit", "tests/property", "tests/contract", "tests/cli", "tests/golden"]
_LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "scratch", "bench-out", "*.egg-info"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Map, sample, run, summarise."""
    options = _parser().parse_args(arguments)
    root, out = options.root.resolve(), options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    tests = _files(root, options.tests, "test_*.py")
    sample, records = _sample(root, options), _read(out / "records.jsonl")
    with _copy(root, out) as clean:
        covered = CoverageStore(root, out / "map")
        for test in [] if options.mapped else covered.stale(tests):
            print(f"map  {test}: {covered.make(test, clean)}", flush=True)
        covered.read(tests)
        for number, mutation in enumerate(sample, 1):
            known = records.get(mutation.name)
            if known is None or (options.again and known["verdict"] != "killed"):
                tests_of = covered.running(mutation.path, mutation.lines)
                chosen = pick(tests_of, options.budget_s)
                outcome = _judge(mutation, chosen, clean, out)
                known = records[mutation.name] = _record(mutation, len(tests_of), chosen, outcome)
                with (out / "records.jsonl").open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(known) + "\n")
            print(f"{number:4}/{len(sample)}  {_line(known)}", flush=True)
    _summarise([records[mutation.name] for mutation in sample])


def _judge(mutation: Mutation, tests: dict[str, float], clean: Path, out: Path) -> Outcome:
    if not tests:
        return Outcome("uncovered")
    with _copy(clean, out) as changed:
        file = changed / mutation.path
        file.write_bytes(mutation.apply(file.read_bytes()))
        return Runner(changed, clean).judge(tests)


def _record(mutation: Mutation, tests: int, ran: dict[str, float], outcome: Outcome) -> dict:
    return {
        "name": mutation.name,
        "path": mutation.path,
        "line": mutation.line,
        "operator": mutation.operator,
        "before": mutation.before,
        "after": mutation.after,
        "tests": tests,
        "ran": len(ran),
        **outcome.to_json(),
    }


def _sample(root: Path, options: argparse.Namespace) -> list[Mutation]:
    """The first ``count`` of all mutations in an order that only the seed decides."""
    found = [
        mutation
        for path in _files(root, options.paths, "*.py")
        for mutation in mutations(path, (root / path).read_bytes())
    ]
    random.Random(options.seed).shuffle(found)
    return found[: options.count]


def _files(root: Path, places: Sequence[str], pattern: str) -> list[str]:
    """Files in these folders, or these files, relative to the root and without duplicates."""
    found: dict[str, None] = {}
    for place in places:
        if not (root / place).exists():
            raise SystemExit(f"{place} is not there: give paths relative to {root}")
        inside = (
            sorted((root / place).rglob(pattern)) if (root / place).is_dir() else [root / place]
        )
        found.update((str(file.relative_to(root)), None) for file in inside)
    return list(found)


@contextmanager
def _copy(root: Path, out: Path) -> Iterator[Path]:
    """A copy of the tree that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:

        def left_out(place: str, names: list[str]) -> set[str]:
            mine = {name for name in names if (Path(place) / name).resolve() == out}
            return _LEFT_OUT(place, names) | mine

        copy = Path(folder).resolve() / "tree"
        shutil.copytree(root, copy, symlinks=True, ignore=left_out)
        yield copy


def _read(file: Path) -> dict[str, dict]:
    """The last record of each mutation; a line that was cut short is made again."""
    records = {}
    if file.exists():
        for line in file.read_text("utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            records[record["name"]] = record
    return records


def _line(record: dict) -> str:
    place = f"{record['path']}:{record['line']}"
    before, after = (" ".join(record[side].split())[:60] for side in ("before", "after"))
    return f"{record['verdict']:9} {place}  {record['operator']}: {before}  ->  {after}"


def _summarise(records: list[dict]) -> None:
    """Counts, and every mutation that was not killed."""
    counts = Counter(record["verdict"] for record in records)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    for record in records:
        if record["verdict"] != "killed":
            print(f"  {_line(record)}  (ran {record['ran']} of {record['tests']} tests)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="mutations to sample")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--paths", nargs="+", default=PATHS, help="what to mutate")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what may notice")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--root", type=Path, default=ROOT, help="of the tree")
    parser.add_argument(
        "--budget-s",
        type=float,
        default=120.0,
        help="seconds that the tests of one mutation may take, by the map (default 120)",
    )
    parser.add_argument("--mapped", action="store_true", help="make no map: use what is there")
    parser.add_argument("--again", action="store_true", help="run again what was not killed before")
    return parser


if __name__ == "__main__":
    # Ended from outside it still ends the tests it runs, and takes its copies away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
