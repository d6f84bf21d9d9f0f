"""Compares the prefill of a long prompt: this project's sessions and llama.cpp's own program.

``make peers`` builds ``llama-bench``; without it only our own sessions are measured.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.bundles import GROWN, Suite
from benchmarks.sections import bare_llamacpp
from benchmarks.workloads import heldout_tokens
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.session import Session, Want
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.tree import TokenTree
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import available_cores
from edgedec.pipeline import Pipeline

_TOKENS, _TURNS = 2000, 3
_CHUNKS = sorted({64, PREFILL_CHUNK, 256, 512, 1024})
_GGUF = "q4_0"


def prefill(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure the time to the first token of a 2,000-token prompt, and llama.cpp's program's."""
    threads = suite.threads or available_cores()
    gguf = suite.bundles.gguf("target", _GGUF, GROWN)
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}
        bundle, plain = suite.bundles.bundle("int4", target=GROWN), suite.plain()
        opened = {"onnx": (bundle, plain), "gguf": (gguf, plain)}
        if find_spec("openvino"):
            opened["openvino"] = (bundle, suite.on_openvino("none"))
        for name, (path, options) in opened.items():
            pipeline = stack.enter_context(Pipeline.open(path, options))
            sessions[name] = stack.enter_context(closing(pipeline.target.open(_TOKENS + 64)))
            tokens = heldout_tokens(pipeline.tokenizer, _TOKENS)
        for turn in range(_TURNS):
            for name, seconds in _turn(sessions, tokens, suite.bundles.work, gguf, threads).items():
                recorder.add(kind="run", way=name, turn=turn, seconds=seconds)
                found.setdefault(name, []).append(seconds)
    return recorder.table(
        {"way": name, "ttft_s": median(seconds), "tokens_per_second": _TOKENS / median(seconds)}
        for name, seconds in found.items()
    )


def _turn(
    sessions: dict[str, Session], tokens: list[int], work: Path, gguf: Path, threads: int
) -> dict[str, float]:
    """Return the seconds of each session, measured in turn."""
    seconds = {
        name: _first_token_s(session, tokens)
        for name, session in sessions.items()
        if name != "onnx"
    }
    for chunk in _CHUNKS:
        sessions["onnx"].prefill_chunk = chunk  # type: ignore[attr-defined]
        seconds[f"onnx, chunks of {chunk}"] = _first_token_s(sessions["onnx"], tokens)
    with suppress(RuntimeUnavailable):
        speed = bare_llamacpp.tokens_per_second(work, gguf, threads, 1, read=_TOKENS)
        seconds["llama-bench"] = _TOKENS / speed
    return seconds


def _first_token_s(session: Session, tokens: list[int]) -> float:
    session.rollback(0)
    begin = perf_counter()
    session.prefill(tokens[:-1])
    session.forward(TokenTree(tokens[-1]), want=Want.TOP)
    seconds = perf_counter() - begin
    session.rollback(0)
    return seconds
