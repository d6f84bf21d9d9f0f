"""Compares everything that drafts for one target: heads, parallel and other drafts, lookup.

Greedy text of a small model repeats itself, which flatters lookup, so sampled text is measured as
well. The target and what drafts for it are grown: they say what the trained ones say, at the cost
of larger ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.bundles import GROWN, LARGER, Suite
from edgedec.compare.drafters import PLAIN, opened
from edgedec.compare.interleaved import Comparison, compare
from edgedec.compare.questions import Question, QuestionAnswerer
from edgedec.compare.records import Recorder, Row
from edgedec.decoding import drafting
from edgedec.decoding.sampling import SamplingParams
from edgedec.pipeline import GenerateOptions, Pipeline

_TOKENS = 96
_DRAFT = "draft-50m"
_TARGETS = {"0.5 B": GROWN, "1 B": LARGER}
_KERNELS = ("onnxruntime", "openvino")
_SAMPLINGS = (SamplingParams(), SamplingParams(temperature=0.7, top_p=0.95, seed=0))
# Those of the bundle with a head and an ordinary draft, and of the one with a parallel draft.
_ORDINARY = ("lookup", "model", "hybrid", "head", "head_tree", "headed", drafting.AUTO)
_PARALLEL = ("parallel", "hybrid")
# Written for this file, in the manner of what the demo pair was trained on.
_ASKED = (
    "Write a function that returns the longest word of a text.",
    "How do I read a file line by line and skip empty lines?",
    "Write a class for a stack with push, pop and peek.",
    "What does this do?\n\nfor key, value in sorted(items.items()):\n    print(key, value)",
    "Write a test for a function that parses a date.",
    "How can I count how often each letter occurs in a string?",
    "Write a function that removes duplicates from a list and keeps the order.",
    "Explain what a generator is, with an example.",
)


@dataclass(frozen=True, slots=True)
class _Case:
    """One target on one kind of kernels.

    Attributes:
        bundles: one with a head and an ordinary draft, one with a parallel draft.

    """

    target: str
    kernels: str
    bundles: tuple[Path, Path]


def drafts(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure every drafter on code and chats, greedy and at temperature 0.7."""
    rows: list[Row] = []
    for name, preset in suite.bundles.sizes(**_TARGETS).items():
        bundles = (
            suite.bundles.bundle("int4", target=preset, draft=_DRAFT, head=True),
            suite.bundles.drafted_by("draft_parallel").bundle("int4", target=preset, draft=_DRAFT),
        )
        for kernels in _KERNELS:
            rows += _measured(suite, recorder, _Case(name, kernels, bundles))
    return rows


def _measured(suite: Suite, recorder: Recorder, case: _Case) -> list[Row]:
    chats = [
        (f"chat {number}", Question(str(number), "chat", (text,)))
        for number, text in enumerate(_ASKED[: suite.prompts])
    ]
    rows: list[Row] = []
    with _entrants(suite, case) as entrants:
        answerers = {name: QuestionAnswerer(pipeline) for name, pipeline in entrants.items()}
        for sampling in _SAMPLINGS:
            options = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
            about = {"target": case.target, "kernels": case.kernels, "T": sampling.temperature}
            recorder.add(kind="case", **about)  # of the runs that follow
            code = compare(entrants, suite.code(), options, recorder)
            chat = compare(answerers, chats, options, recorder)
            for kind, found in (("code", code), ("chat", chat)):
                rows += [{**about, "texts": kind, **row} for row in _rows(found, recorder)]
    return recorder.table(rows, "drafts")


@contextmanager
def _entrants(suite: Suite, case: _Case) -> Iterator[dict[str, Pipeline]]:
    """Open plain decoding at its fastest and every drafter, on these kernels."""
    providers = {"providers": ("OpenVINO",)} if case.kernels == "openvino" else {}
    plain = suite.plain().changed(**providers)
    ordinary = {name: suite.options(drafter=name, **providers) for name in _ORDINARY}
    parallel = {name: suite.options(drafter=name, **providers) for name in _PARALLEL}
    first, second = case.bundles
    with opened(first, {PLAIN: plain, **ordinary}) as a, opened(second, parallel) as b:
        yield {**a, **{f"{name}, parallel draft": one for name, one in b.items()}}


def _rows(found: Comparison, recorder: Recorder) -> Iterator[Row]:
    """Return each drafter's figures, with tokens a target pass and milliseconds a drafted token."""
    last = recorder.runs[-len(found.tpot_s) * len(found.prompts) :]
    for name in found.tpot_s:
        runs = [run for run in last if run["candidate"] == name]
        drafted = sum(run["drafted_tokens"] for run in runs)
        yield {
            "candidate": name,
            **found.summary(name),
            "block_efficiency": mean(run["block_efficiency"] for run in runs),
            "drafted_ms": 1000 * sum(run["draft_s"] for run in runs) / max(1, drafted),
        }
