"""Measures ``edgedec serve`` against the same pipeline in this process, and its fairness."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

PARALLEL, TOKENS = 4, 128
# Tokens of the prompts and outputs of concurrent clients.
EQUAL = ((256, 64),) * 4
MIXED = ((16, 32), (64, 128), (256, 64), (512, 256))
TIMES = 12


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of the first and the last token of a response, in seconds, and its tokens."""

    ttft_s: float
    total_s: float
    tokens: int

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second over the whole response time."""
        return self.tokens / self.total_s


def serve(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare one client with ``generate``, then four at once, of equal and mixed lengths."""
    # Speed does not depend on the rounding of weights; to nearest takes a minute instead of ten.
    grown = suite.bundles.bundle("int4", target=GROWN, block_size=128)
    rows = [_one_client(name, model, suite, recorder) for name, model in
            (("shipped", suite.bundles.shipped()), ("0.5 B", grown))]  # fmt: skip
    shipped = suite.bundles.shipped()
    with server(suite, shipped) as running, Pipeline.open(shipped, suite.plain()) as pipeline:
        tokens = pipeline.tokenizer.encode("".join(str(text) for _, text in suite.code()))
        for name, clients in (("equal", EQUAL), ("mixed", MIXED)):
            rows.append(_at_once(running.address, name, clients, tokens, recorder))
    return rows


def _one_client(name: str, model: str | Path, suite: Suite, recorder: Recorder) -> Row:
    """Return ratios of the server to the pipeline; both generate the texts in turn."""
    options = suite.options(parallel=PARALLEL)
    with server(suite, model) as running, Pipeline.open(model, options) as pipeline:
        sides = {
            "generate": lambda prompt: _generated(pipeline, prompt, TOKENS),
            "serve": lambda prompt: asked(
                running.address, pipeline.tokenizer.encode(prompt), TOKENS
            ),
        }
        return _in_turn(name, sides, suite.code(), recorder)


def _in_turn(
    pair: str,
    sides: dict[str, Callable[[Any], Timed]],
    prompts: list[tuple[str, Prompt]],
    recorder: Recorder,
) -> Row:
    found: dict[str, list[Timed]] = {name: [] for name in sides}
    for side in sides.values():  # warm
        side("def warm(up):")
    for place, (prompt, text) in enumerate(prompts):
        for name in sorted(sides, reverse=place % 2 == 1):
            timed = sides[name](text)
            found[name].append(timed)
            recorder.add(
                kind="run",
                pair=pair,
                side=name,
                prompt=prompt,
                tokens=timed.tokens,
                ttft_s=timed.ttft_s,
                total_s=timed.total_s,
            )
    here, there = found["generate"], found["serve"]
    pairs = list(zip(here, there, strict=True))
    row = {
        "clients": 1,
        "pair": pair,
        "same_length": sum(a.tokens == b.tokens for a, b in pairs),
        "texts": len(pairs),
        "ttft": median(b.ttft_s / a.ttft_s for a, b in pairs),
        "ttft_more_ms": 1e3 * median(b.ttft_s - a.ttft_s for a, b in pairs),
        "speed": median(b.tokens_per_second / a.tokens_per_second for a, b in pairs),
        "tokens_per_second": tuple(
            sum(one.tokens for one in side) / sum(one.total_s for one in side)
            for side in (here, there)
        ),
    }
    recorder.add(kind="summary", **row)
    return row


def _at_once(
    address: str,
    name: str,
    clients: Sequence[tuple[int, int]],
    tokens: list[int],
    recorder: Recorder,
) -> Row:
    """Return how long concurrent clients wait for a first token and for the whole response.

    Times depend on the lengths of prompt and output, so each is compared with its time alone.
    """
    starts = itertools.count(0, 7)  # so that no prompt is a prefix of another
    alone: list[list[Timed]] = []
    together: list[list[Timed]] = []
    with ThreadPoolExecutor(len(clients)) as pool:
        for _ in range(TIMES):
            first, second = (
                [(_prompt(tokens, starts, size), new) for size, new in clients] for _ in range(2)
            )
            alone.append([asked(address, *one) for one in first])
            together.append(list(pool.map(lambda one: asked(address, *one), second)))
            recorder.add(
                kind=name,
                ttft_alone_s=[one.ttft_s for one in alone[-1]],
                total_alone_s=[one.total_s for one in alone[-1]],
                ttft_s=[one.ttft_s for one in together[-1]],
                total_s=[one.total_s for one in together[-1]],
                prompts_and_texts=clients,
            )
    firsts = [[one.ttft_s for one in times] for times in together]
    ratios = [max(first) / min(first) for first in firsts]
    delays = _ratios(together, alone, lambda one: one.ttft_s)
    tokens_took = _ratios(together, alone, lambda one: one.total_s / one.tokens)
    row = {
        "clients": name,
        "slowest_over_fastest_first_token": median(ratios),
        "worst": max(ratios),
        "ttft_ms": tuple(1e3 * median(times) for times in zip(*firsts, strict=True)),
        "ttft_over_alone": tuple(map(median, zip(*delays, strict=True))),
        "most_over_least_delayed": median(max(one) / min(one) for one in delays),
        # Texts may end early.
        "token_over_alone": tuple(map(median, zip(*tokens_took, strict=True))),
    }
    recorder.add(kind="fairness", **row)
    return row


def _ratios(
    together: list[list[Timed]], alone: list[list[Timed]], of: Callable[[Timed], float]
) -> list[list[float]]:
    """Return ratios of concurrent times to times alone, by kind of time and client."""
    return [
        [of(one) / of(own) for one, own in zip(*both, strict=True)]
        for both in zip(together, alone, strict=True)
    ]


def _prompt(tokens: list[int], starts: Iterator[int], size: int) -> list[int]:
    start = next(starts)
    return tokens[start : start + size]


def _generated(pipeline: Pipeline, prompt: Prompt, most: int) -> Timed:
    began = perf_counter()
    stream = pipeline.stream(prompt, GenerateOptions(most))
    next(stream)
    first = perf_counter()
    tokens = 1 + sum(1 for _ in stream)
    return Timed(first - began, perf_counter() - began, tokens)


def asked(address: str, prompt: list[int], most: int, timeout_s: float | None = None) -> Timed:
    """Request a streamed response from a server.

    Raises:
        EdgedecError: the server answers with an error.
        OSError, HTTPException: it does not answer, or not for ``timeout_s``.

    """
    first, last, usage = 0.0, "", {"include_usage": True}
    body = {"prompt": prompt, "max_tokens": most, "stream_options": usage}
    began = perf_counter()
    for data in events(address, body, timeout_s):
        first = first or perf_counter()
        last = data if data != "[DONE]" else last
    total = perf_counter() - began
    if '"usage"' not in last:
        raise EdgedecError(f"the server's text has no end: {last!r:.200}")
    return Timed(first - began, total, json.loads(last)["usage"]["completion_tokens"])


def events(address: str, body: dict[str, Any], timeout_s: float | None = None) -> Iterator[str]:
    """Yield the data of a streamed response's events, as each arrives; errors as ``asked``."""
    given = {"model": "bench", "temperature": 0, "stream": True, **body}
    connection = HTTPConnection(address, timeout=timeout_s)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(given), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise EdgedecError(f"the server answered {answer.status}: {answer.read()!r:.200}")
        for line in answer:
            if line.startswith(b"data: "):
                yield line[6:].decode().rstrip()
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A server process, its host and port, and what it writes to stderr."""

    process: subprocess.Popen[str]
    address: str
    stderr: IO[str]

    def said(self) -> str:
        """Return what it has written to stderr."""
        self.stderr.seek(0)
        return self.stderr.read()


@contextmanager
def server(suite: Suite, model: str | Path, *options: str) -> Iterator[Running]:
    """Run ``edgedec serve`` with these options in addition."""
    command = [sys.executable, "-m", "edgedec", "serve", str(model), "--port", "0"]
    command += ["--plan", "none", "--parallel", str(PARALLEL), "--name", "bench", *options]
    command += [] if suite.threads is None else ["--threads", str(suite.threads)]
    with started(command) as running:
        yield running


@contextmanager
def started(command: Sequence[str]) -> Iterator[Running]:
    """Run a server whose first line says its address.

    Raises:
        EdgedecError: it ends before that.

    """
    with (
        tempfile.TemporaryFile("a+") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            found = re.search(r"http://\S+?:\d+", process.stdout.readline())
            running = Running(process, urlsplit(found[0]).netloc if found else "", stderr)
            if found is None:
                raise EdgedecError(f"the server did not start: {running.said()!r:.500}")
            yield running
        finally:
            process.terminate()
