"""Measures quantised keys and values of the target: divergence, acceptance, pass time.

They change the text, so they are used on request only: at export for ONNX (``--kv int8``), at load
for GGUF (``--kv``). The draft is the same model in all configurations of a runtime.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.bundles import Suite
from benchmarks.pass_times import pass_times
from benchmarks.workloads import heldout_tokens, long_text
from edgedec.compare.interleaved import facts
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.session import Session, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.records.load import LoadOptions

_TOKENS, _ROWS, _TEXT = 2000, 32, 64
_WIDTHS, _REPEATS = (1, 5), 15
# The first type of each runtime is the reference of the others.
_ONNX, _GGUF = ("fp32", "int8"), ("f16", "q8_0", "q4_0")


def kv_types(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare types of the shipped target's keys and values over 2,000 tokens of held-out code."""
    bundles = suite.bundles
    draft = bundles.alone("onnx", "draft", "int4")
    onnx = {
        kind: (bundles.bundle("int4", kv=kind), {"draft": draft}) for kind in _ONNX
    }  # fmt: skip
    draft = bundles.gguf("draft", "q8_0")
    target = bundles.gguf("target", "q4_0")
    own = LoadOptions(threads=suite.threads)  # the draft's keys and values stay f16
    gguf = {kind: (target, {"draft": draft, "draft_load": own, "kv": kind}) for kind in _GGUF}
    return [
        row
        for runtime, ways in (("onnx", onnx), ("llamacpp", gguf))
        for row in _compared(suite, runtime, ways, recorder)
    ]


def _compared(
    suite: Suite,
    runtime: str,
    ways: Mapping[str, tuple[Path, Mapping[str, Any]]],
    recorder: Recorder,
) -> list[Row]:
    with ExitStack() as stack:
        opened = {
            kind: stack.enter_context(
                Pipeline.open(
                    path,
                    suite.options(
                        drafter="model", draft_length=4, max_context=_TOKENS + 256, **chosen
                    ),
                )
            )
            for kind, (path, chosen) in ways.items()
        }
        rows = {
            kind: {"runtime": runtime, "kv": kind,
                   "bytes_per_token": one.target.info.kv_bytes_per_token}
            for kind, one in opened.items()
        }  # fmt: skip
        for part in (_diverged(opened), _timed(opened), _texts(suite, opened, recorder)):
            for kind, found in part.items():
                rows[kind] |= found
    return recorder.table(rows.values())


# -- divergence ---------------------------------------------------------------------------------


def _diverged(opened: Mapping[str, Pipeline]) -> dict[str, Row]:
    """Compare the next token's distribution after every position of one text."""
    found: dict[str, Row] = {}
    first: FloatArray | None = None
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, pipeline) in enumerate(opened.items()):
            tokens = heldout_tokens(pipeline.tokenizer, _TOKENS)
            logs = np.lib.format.open_memmap(
                Path(folder) / f"{number}.npy", "w+", np.float32,
                (len(tokens), pipeline.target.info.vocab_size),
            )  # fmt: skip
            _write_logs(pipeline, tokens, logs)
            first = logs if first is None else first
            following = np.asarray(tokens[1:])
            kl = [float((np.exp(p) * (p - q)).sum()) for p, q in zip(first, logs, strict=True)]
            found[kind] = {
                "kl_nats": mean(kl),
                "kl_nats_last_quarter": mean(kl[-len(kl) // 4 :]),
                "kl_nats_most": max(kl),
                "same_first_choice": float(np.mean(first.argmax(1) == logs.argmax(1))),
                "perplexity": float(
                    np.exp(-np.mean(logs[np.arange(len(following)), following]))
                ),
            }  # fmt: skip
    return found


def _write_logs(pipeline: Pipeline, tokens: Sequence[int], logs: FloatArray) -> None:
    """Write log-probabilities after each token, ``[len(tokens), vocab]``."""
    session = pipeline.target.open(_TOKENS + _ROWS)
    try:
        for at in range(0, len(tokens), _ROWS):
            part = TokenTree.chain(tokens[at : at + _ROWS])
            logits = session.forward(part, want=Want.LOGITS).logits
            assert logits is not None
            rows = logits.astype(np.float64)
            rows -= rows.max(axis=1, keepdims=True)
            logs[at : at + len(part)] = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
            session.commit(list(range(len(part))))
    finally:
        session.close()


# -- pass time ----------------------------------------------------------------------------------


def _timed(opened: Mapping[str, Pipeline]) -> dict[str, Row]:
    """Time passes after 2,000 tokens, of all types in turn."""
    sessions: dict[str, Session] = {}
    try:
        for kind, pipeline in opened.items():
            sessions[kind] = pipeline.target.open(_TOKENS + _ROWS)
        tokenizer = next(iter(opened.values())).tokenizer
        tokens = long_text(tokenizer, _TOKENS + max(_WIDTHS))
        taken = pass_times(sessions, tokens, _TOKENS, _WIDTHS, _REPEATS, Want.LOGITS)
    finally:
        for session in sessions.values():
            session.close()
    first = next(iter(opened))
    return {
        kind: {
            f"pass_over_{width}_of_first": median(taken[kind][width]) / median(taken[first][width])
            for width in _WIDTHS
        }
        | {f"pass_over_{width}_ms": 1e3 * median(taken[kind][width]) for width in _WIDTHS}
        for kind in opened
    }


# -- texts --------------------------------------------------------------------------------------


def _texts(suite: Suite, opened: Mapping[str, Pipeline], recorder: Recorder) -> dict[str, Row]:
    """Draft four tokens per round after long prompts; count the texts that changed."""
    options = GenerateOptions(_TEXT, ignore_eos=True)
    first = next(iter(opened))
    texts: dict[str, list[Sequence[int]]] = {kind: [] for kind in opened}
    accepted: dict[str, list[float]] = {kind: [] for kind in opened}
    for number, (name, prompt) in enumerate(suite.code()):
        for kind, pipeline in opened.items():
            before = long_text(pipeline.tokenizer, _TOKENS)[number + _TEXT :]
            tokens = [*before, *pipeline.tokenizer.encode(str(prompt))]
            pipeline.forget()
            run = pipeline.generate(tokens, options)
            texts[kind].append(run.token_ids)
            accepted[kind].append(run.metrics.acceptance_rate or 0.0)
            recorder.add(kind="run", candidate=kind, prompt=name, **facts(run))
    return {
        kind: {
            "acceptance_rate": mean(accepted[kind]),
            "texts": len(texts[kind]),
            "texts_changed": sum(
                a != b for a, b in zip(texts[kind], texts[first], strict=True)
            ),
        }
        for kind in opened
    }  # fmt: skip
