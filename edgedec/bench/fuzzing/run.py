"""Runs damaged inputs, counts the outcomes and keeps failing inputs."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedec.bench.fuzzing.kinds import Kind, kinds
from edgedec.bench.records import Recorder
from edgedec.errors import EdgedecError
from edgedec.text.tokenizer_check import CHECKER

Row = dict[str, Any]
SEED = 0
BATCH = 1000
OUTCOMES = ("accepted", "refused", "failure")
_MAX_MESSAGE = 4000
_MAX_SECONDS = 5.0


@dataclass(slots=True)
class Tally:
    """Outcomes of one kind's inputs.

    Attributes:
        outcomes: how many were ``accepted``, ``refused`` with an error of one line, or a
            ``failure``.
        seconds: processor time of this process, in seconds.
        slowest_s: processor time of the slowest input, in seconds.

    """

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest_s: float = 0.0


def run(
    recorder: Recorder, count: int, out: Path, seed: int = SEED, only: Sequence[str] = ()
) -> list[Row]:
    """Read ``count`` damaged inputs of all kinds in turn, or of those whose names are given.

    An input is named by seed, kind and index. It is written to a file before it is read, so an
    input that ends this process remains in ``out/fuzz-inputs``, as do all failures.
    """
    kept = out / "fuzz-inputs"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="edgedec-fuzz-") as made:
        known = [kind for kind in kinds(Path(made)) if not only or kind.name in only]
        folders = {kind.name: _folder(kept, kind) for kind in known}
        tallies = {kind.name: Tally() for kind in known}
        begin = time.perf_counter()
        # Ctrl-C ends the run early; the counts so far are recorded.
        with suppress(KeyboardInterrupt):
            for kind, indices in _batches(known, count):
                for index in indices:
                    tally = tallies[kind.name]
                    problem = _one(kind, folders[kind.name], tally, seed, index)
                    if problem:
                        file = _keep(kept, kind, folders[kind.name], index)
                        recorder.add(kind="failure", input=kind.name, seed=seed, index=index,
                                     problem=problem, file=file.name)  # fmt: skip
        CHECKER.close()
        for folder in folders.values():
            shutil.rmtree(folder)
    rows = [_row(name, tally) for name, tally in tallies.items()]
    recorder.table(({"seed": seed, **row} for row in rows), "tally")
    recorder.add(
        kind="total",
        asked=count,
        elapsed_s=time.perf_counter() - begin,
        **{what: sum(row[what] for row in rows) for what in ("inputs", *OUTCOMES)},
    )
    return rows


def damaged(kind: Kind, seed: int, index: int) -> bytes:
    """Return the input of this name."""
    return kind.make(random.Random(f"{seed} {kind.name} {index}"))


def _batches(known: list[Kind], count: int) -> Iterator[tuple[Kind, range]]:
    """Yield the indices of each kind in its share, in batches of about ``BATCH`` inputs."""
    every = sum(kind.share for kind in known)
    totals = {kind.name: round(kind.share / every * count) for kind in known}
    at = dict.fromkeys(totals, 0)
    while any(at[name] < total for name, total in totals.items()):
        for kind in known:
            start = at[kind.name]
            stop = min(totals[kind.name], start + max(1, round(kind.share * BATCH)))
            at[kind.name] = stop
            if stop > start:
                yield kind, range(start, stop)


def _one(kind: Kind, folder: Path, tally: Tally, seed: int, index: int) -> str:
    """Return why an input is a failure, else ""."""
    file = folder / kind.file
    file.write_bytes(damaged(kind, seed, index))
    begin = time.process_time()
    outcome, problem = "accepted", ""
    try:
        kind.read(file)
    except EdgedecError as error:
        outcome = "refused"
        if "\n" in str(error) or len(str(error)) > _MAX_MESSAGE:
            problem = f"its error is not one line: {str(error)[:200]!r}"
    except Exception as error:  # the failures this bench looks for
        problem = f"{type(error).__name__}: {error}"[:500]
    seconds = time.process_time() - begin
    tally.seconds += seconds
    tally.slowest_s = max(tally.slowest_s, seconds)
    if not problem and seconds > _MAX_SECONDS:
        problem = f"it took {seconds:.1f} s"
    tally.outcomes["failure" if problem else outcome] += 1
    return problem


def _row(name: str, tally: Tally) -> Row:
    total = sum(tally.outcomes.values())
    return {
        "input": name,
        "inputs": total,
        **{what: tally.outcomes[what] for what in OUTCOMES},
        "mean_s": tally.seconds / max(1, total),
        "slowest_s": tally.slowest_s,
    }


def _folder(kept: Path, kind: Kind) -> Path:
    """Return the folder of a kind's inputs, with the files that a valid one needs."""
    folder = kept / f"current-{kind.name}".replace(" ", "-")
    folder.mkdir(exist_ok=True)
    kind.furnish(folder)
    # A reader that refuses the valid input would test nothing.
    (folder / kind.file).write_bytes(kind.whole)
    kind.read(folder / kind.file)
    return folder


def _keep(kept: Path, kind: Kind, folder: Path, index: int) -> Path:
    to = kept / f"{kind.name}-{index}".replace(" ", "-")
    to.write_bytes((folder / kind.file).read_bytes())
    return to
