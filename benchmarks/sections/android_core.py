"""Compares the phone demo's decoder, on this machine's JVM, with Python on the shipped bundle.

The JVM is a child process that computes what each line of its standard input asks for; it and this
process take turns, so that a ratio's two sides meet the same machine. ONNX Runtime's Java library
has a version of its own, which is recorded next to Python's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import IO, Any

from benchmarks.bundles import Suite
from benchmarks.workloads import heldout_tokens
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.pass_times import time_pass
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Session, Want
from edgedec.errors import EdgedecError, InputError
from edgedec.loading.build import OpenOptions
from edgedec.models.demo import BUNDLE
from edgedec.pipeline import GenerateOptions, Pipeline

BUILT = Path(__file__).resolve().parents[2] / "android_demo" / "build" / "core"
# Seconds by Python and by the JVM.
Turn = tuple[Sequence[float], Sequence[float]]
Way = Callable[[], Sequence[float]]
_ROWS, _CONTEXT = (1, 2, 4, 8), 300
_TURNS, _PASSES, _OPENED, _TOKENS = 15, 40, 7, 128
_SAMPLINGS = {
    "greedy": SamplingParams(),
    "temperature 0.8": SamplingParams(temperature=0.8, seed=0),
}


def android_core(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare passes, opening, and texts, plain and drafted; measure the JVM's loop alone."""
    with running(BUNDLE, suite.threads or 1, BUILT) as jvm:
        recorder.add(kind="versions", **{f"jvm_{name}": fact for name, fact in jvm.about.items()})
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
def running(bundle: Path, threads: int, built: Path) -> Iterator[Jvm]:
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


def ratio(turns: Sequence[Turn]) -> float:
    """Return how many times as long the JVM takes: the median of the turns' ratios of medians.

    Args:
        turns: seconds of Python and of the JVM.

    """
    return median(median(jvm) / median(python) for python, jvm in turns)


def _row(what: str, unit: str, turns: Sequence[Turn]) -> Row:
    python, jvm = (median(median(turn[side]) for turn in turns) for side in (0, 1))
    return {"what": what, "unit": unit, "python": python, "jvm": jvm, "jvm_ratio": ratio(turns)}


def _passes(suite: Suite, jvm: Jvm, recorder: Recorder) -> list[Row]:
    """Compare passes of the target by their number of rows."""
    rows = []
    with (
        Pipeline.open(BUNDLE, _options(suite, "none")) as pipeline,
        closing(pipeline.target.open(_CONTEXT + 2 * _ROWS[-1])) as session,
    ):
        tokens = heldout_tokens(pipeline.tokenizer, _CONTEXT + _ROWS[-1])
        session.prefill(tokens[:_CONTEXT])
        for width in _ROWS:
            chain = tokens[_CONTEXT : _CONTEXT + width]
            fields: Row = {"tokens": tokens[:_CONTEXT], "chain": chain, "count": _PASSES}
            ways: list[Way] = [
                partial(_timed, session, chain),
                partial(_seconds, jvm, "passes", fields),
            ]
            turns: list[Turn] = []
            for turn in range(_TURNS):
                python, by_jvm = in_turn(turn, ways)
                turns.append((python, by_jvm))
                recorder.add(kind="passes", rows=width, turn=turn, python=python, jvm=by_jvm)
            rows.append(_row(f"pass of {width} rows", "s", turns))
    return rows


def _seconds(jvm: Jvm, kind: str, fields: Row) -> list[float]:
    return list(jvm.ask(kind, **fields)["seconds"])


def _timed(session: Session, chain: Sequence[int]) -> list[float]:
    return [time_pass(session, chain, want=Want.TOP) for _ in range(_PASSES)]


def in_turn(turn: int, ways: Sequence[Way]) -> Turn:
    """Measure Python's way and the JVM's, the JVM first in every second turn."""
    found = {side: ways[side]() for side in ((0, 1) if turn % 2 == 0 else (1, 0))}
    return found[0], found[1]


def _opened(suite: Suite, jvm: Jvm, recorder: Recorder) -> list[Row]:
    """Compare opening the bundle in a process that has opened it before."""

    def python() -> list[float]:
        begin = perf_counter()
        Pipeline.open(BUNDLE, _options(suite, "auto")).close()
        return [perf_counter() - begin]

    turns: list[Turn] = []
    for turn in range(_OPENED):
        turns.append(in_turn(turn, [python, partial(_seconds, jvm, "open", {})]))
        recorder.add(kind="open", turn=turn, python=turns[-1][0], jvm=turns[-1][1])
    return [_row("open", "s", turns)]


def _texts(suite: Suite, jvm: Jvm, recorder: Recorder) -> list[Row]:
    """Compare texts, plain and drafted, and how much drafting gains on each side."""
    with (
        Pipeline.open(BUNDLE, _options(suite, "none")) as plain,
        Pipeline.open(BUNDLE, _options(suite, "auto")) as drafted,
    ):
        ways = {"plain": plain, "drafted": drafted}
        rows: list[Row] = []
        for name, sampling in _SAMPLINGS.items():
            asked = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
            found = {way: _Texts(jvm, one, way, asked) for way, one in ways.items()}
            for turn, (prompt_name, prompt) in enumerate(suite.code()):
                for way, texts in found.items():
                    run = texts.decode(turn, str(prompt))
                    recorder.add(kind="run", prompt=prompt_name, way=way, sampling=name, **run)
            for way, texts in found.items():
                rows.append(_row(f"token, {way}, {name}", "s", texts.turns))
                rows.append(_loop(f"{way}, {name}", texts.outside))
            rows.append(speed_up(found["plain"].turns, found["drafted"].turns, name))
        return rows


class _Texts:
    """Texts of one configuration, by Python and by the JVM in turn."""

    def __init__(self, jvm: Jvm, pipeline: Pipeline, way: str, asked: GenerateOptions) -> None:
        self._jvm, self._pipeline, self._way, self._asked = jvm, pipeline, way, asked
        self.turns: list[Turn] = []
        self.outside: list[float] = []

    def decode(self, turn: int, prompt: str) -> Row:
        """Decode a prompt on both sides; return the JVM's figures and Python's time per token."""
        texts: list[Row] = []

        def by_jvm() -> list[float]:
            temperature = str(self._asked.sampling.temperature)
            fields: Row = {"prompt": prompt, "way": self._way, "temperature": temperature}
            texts.append(self._jvm.ask("text", tokens=self._asked.max_new_tokens, **fields))
            return [texts[0]["tpot_s"]]

        self.turns.append(in_turn(turn, [lambda: self._by_python(prompt), by_jvm]))
        self.outside.append(texts[0]["outside_s"])
        return {**texts[0], "python_tpot_s": self.turns[-1][0][0]}

    def _by_python(self, prompt: str) -> list[float]:
        return [self._pipeline.generate(prompt, self._asked).metrics.tpot_s]


def _loop(way: str, seconds: Sequence[float]) -> Row:
    """Return the median time of a round outside the models' passes."""
    what = f"round outside the passes, {way}"
    return {"what": what, "unit": "s", "python": None, "jvm": median(seconds), "jvm_ratio": None}


def speed_up(plain: Sequence[Turn], drafted: Sequence[Turn], name: str) -> Row:
    """Return the median speed-up by drafting over the prompts, on each side."""
    python, jvm = (
        median(median(a[side]) / median(b[side]) for a, b in zip(plain, drafted, strict=True))
        for side in (0, 1)
    )
    row: Row = {"what": f"speed-up by drafting, {name}", "unit": "x", "python": python, "jvm": jvm}
    return {**row, "jvm_ratio": jvm / python}


def _options(suite: Suite, drafter: str) -> OpenOptions:
    return OpenOptions(drafter=drafter, threads=suite.threads or 1, plan="none")


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream
