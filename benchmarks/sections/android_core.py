"""Compares the phone demo's decoder, on this machine's JVM, with Python on the shipped bundle.

The JVM is a child process that computes what each line of its standard input asks for; it and this
process take turns, so that a ratio's two sides meet the same machine. ONNX Runtime's Java library
has a version of its own, which is recorded next to Python's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import IO, Any

from benchmarks.bundles import Suite
from benchmarks.workloads import heldout_tokens
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.pass_times import time_pass
from edgedec.decoding.session import Session, Want
from edgedec.errors import EdgedecError, InputError
from edgedec.loading.build import OpenOptions
from edgedec.models.demo import BUNDLE
from edgedec.pipeline import GenerateOptions, Pipeline

BUILT = Path(__file__).resolve().parents[2] / "android_demo" / "build" / "core"
_ROWS, _CONTEXT = (1, 2, 4, 8), 300
_TURNS, _PASSES, _OPENED, _TOKENS = 15, 40, 7, 128


def android_core(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare passes, opening, and texts, plain and drafted; measure the JVM's loop alone."""
    with running(BUNDLE, suite.threads or 1) as jvm:
        recorder.add(kind="versions", **jvm.about)
        rows = _passes(suite, jvm, recorder)
        rows += _opened(suite, jvm, recorder)
        rows += _texts(suite, jvm, recorder)
    return recorder.table(rows)


class Jvm:
    """A running JVM that measures: ``android_demo/core``'s ``Bench``.

    Attributes:
        about: versions, and seconds of its first opening.

    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.about = self._line()

    def ask(self, kind: str, **fields: Any) -> Row:
        """Return the answer to one request."""
        to = _of(self._process.stdin)
        to.write(json.dumps({"kind": kind, **fields}) + "\n")
        to.flush()
        return self._line()

    def _line(self) -> Row:
        line = _of(self._process.stdout).readline()
        if not line:
            raise EdgedecError(f"the JVM ended: {_of(self._process.stderr).read().strip()[-300:]}")
        found: Row = json.loads(line)
        if "error" in found:
            raise EdgedecError(f"the JVM: {found['error']}")
        return found


@contextmanager
def running(bundle: Path, threads: int, built: Path = BUILT) -> Iterator[Jvm]:
    """Start the JVM on a bundle; InputError if it was not built."""
    try:
        libraries = (built / "classpath").read_text("utf-8").strip()
    except OSError:
        raise InputError("android_demo/core is not built: run `make android-core`") from None
    jars = os.pathsep.join([*map(os.fspath, built.glob("core-*.jar")), libraries])
    command = ["java", f"-Djava.io.tmpdir={built}", "-cp", jars, "dev.edgedec.core.BenchKt"]
    process = subprocess.Popen(
        [*command, os.fspath(bundle), str(threads)],
        env=os.environ | {"ORT_DISABLE_TELEMETRY": "1"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Jvm(process)
    finally:
        process.kill()
        process.communicate()


def ratio(turns: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Return how many times as long the JVM takes: the median of the turns' ratios of medians.

    Args:
        turns: seconds of Python and of the JVM.

    """
    return median(median(jvm) / median(python) for python, jvm in turns)


def _row(what: str, unit: str, turns: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Row:
    python, jvm = (median(median(turn[side]) for turn in turns) for side in (0, 1))
    return {"what": what, "unit": unit, "python": python, "jvm": jvm, "jvm_ratio": ratio(turns)}


def _passes(suite: Suite, jvm: Jvm, recorder: Recorder) -> list[Row]:
    """Compare passes of the target by their number of rows."""
    rows = []
    with Pipeline.open(BUNDLE, _options(suite, "none")) as pipeline:
        tokens = heldout_tokens(pipeline.tokenizer, _CONTEXT + _ROWS[-1])
        with closing(pipeline.target.open(_CONTEXT + 2 * _ROWS[-1])) as session:
            session.prefill(tokens[:_CONTEXT])
            for width in _ROWS:
                chain = tokens[_CONTEXT : _CONTEXT + width]
                asked: Row = {"tokens": tokens[:_CONTEXT], "chain": chain, "count": _PASSES}
                turns = []
                for turn in range(_TURNS):
                    ways = [
                        lambda chain=chain: _timed(session, chain),
                        lambda asked=asked: list(jvm.ask("passes", **asked)["seconds"]),
                    ]
                    turns.append(_in_turn(turn, ways))
                    recorder.add(
                        kind="passes", rows=width, turn=turn, python=turns[-1][0], jvm=turns[-1][1]
                    )
                rows.append(_row(f"pass of {width} rows", "s", turns))
    return rows


def _timed(session: Session, chain: Sequence[int]) -> list[float]:
    return [time_pass(session, chain, want=Want.TOP) for _ in range(_PASSES)]


def _in_turn(turn: int, ways: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Run Python's and the JVM's measurement, the other one first in every second turn."""
    order = (0, 1) if turn % 2 == 0 else (1, 0)
    found = {side: ways[side]() for side in order}
    return found[0], found[1]


def _opened(suite: Suite, jvm: Jvm, recorder: Recorder) -> list[Row]:
    """Compare opening the bundle in a process that has opened it before."""

    def python() -> list[float]:
        begin = perf_counter()
        Pipeline.open(BUNDLE, _options(suite, "auto")).close()
        return [perf_counter() - begin]

    turns = []
    for turn in range(_OPENED):
        turns.append(_in_turn(turn, [python, lambda: list(jvm.ask("open")["seconds"])]))
        recorder.add(kind="open", turn=turn, python=turns[-1][0], jvm=turns[-1][1])
    return [_row("open", "s", turns)]


def _texts(suite: Suite, jvm: Jvm, recorder: Recorder) -> list[Row]:
    """Compare texts, plain and drafted, and the JVM's drafted ones with its plain ones."""
    found: dict[str, list[tuple[list[float], list[float]]]] = {"plain": [], "drafted": []}
    outside: dict[str, list[float]] = {"plain": [], "drafted": []}
    asked = GenerateOptions(_TOKENS, ignore_eos=True)
    with (
        Pipeline.open(BUNDLE, _options(suite, "none")) as plain,
        Pipeline.open(BUNDLE, _options(suite, "auto")) as drafted,
    ):
        pipelines = {"plain": plain, "drafted": drafted}
        for turn, (name, prompt) in enumerate(suite.code()):
            for way, pipeline in pipelines.items():

                def by_python(pipeline: Pipeline = pipeline, prompt: Any = prompt) -> list[float]:
                    return [pipeline.generate(prompt, asked).stats["tpot_s"]]

                texts: list[Row] = []

                def by_jvm(way: str = way, prompt: Any = prompt) -> list[float]:
                    texts.append(jvm.ask("text", prompt=prompt, way=way, tokens=_TOKENS))
                    return [texts[-1]["tpot_s"]]

                found[way].append(_in_turn(turn, [by_python, by_jvm]))
                outside[way].append(texts[-1]["outside_s"])
                recorder.add(
                    kind="run", prompt=name, way=way, python_tpot_s=found[way][-1][0], **texts[-1]
                )
    rows = [_row(f"token, {way}", "s", turns) for way, turns in found.items()]
    rows += [_loop(way, seconds) for way, seconds in outside.items()]
    return [*rows, speed_up(found["plain"], found["drafted"])]


def _loop(way: str, seconds: Sequence[float]) -> Row:
    """Return the median time of a round outside the models' passes."""
    what = f"round outside the passes, {way}"
    return {"what": what, "unit": "s", "python": None, "jvm": median(seconds), "jvm_ratio": None}


def speed_up(
    plain: Sequence[tuple[Sequence[float], Sequence[float]]],
    drafted: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> Row:
    """Return the median speed-up by drafting over the prompts, on each side."""
    python, jvm = (
        median(median(a[side]) / median(b[side]) for a, b in zip(plain, drafted, strict=True))
        for side in (0, 1)
    )
    row: Row = {"what": "speed-up by drafting", "unit": "x", "python": python, "jvm": jvm}
    return {**row, "jvm_ratio": jvm / python}


def _options(suite: Suite, drafter: str) -> OpenOptions:
    return OpenOptions(drafter=drafter, threads=suite.threads or 1, plan="none")


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
