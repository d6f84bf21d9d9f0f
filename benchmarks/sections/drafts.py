"""Compares everything that drafts for one target: heads, parallel and other drafts, lookup.

Greedy text of a small model repeats itself, which flatters lookup, so sampled text is measured as
well. The target and what drafts for it are grown: they say what the trained ones say, at the cost
of larger ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.bundles import GROWN, LARGER, Suite
from benchmarks.questions import (
    Question,
    QuestionAnswerer,
    has_turns,
    read_questions,
)
from edgedec.bundle import Bundle
from edgedec.compare.drafters import PLAIN, opened
from edgedec.compare.interleaved import Comparison, compare
from edgedec.compare.records import Recorder, Row
from edgedec.decoding import drafting
from edgedec.decoding.sampling import SamplingParams
from edgedec.pipeline import GenerateOptions, Pipeline

_TOKENS = 96
_DRAFT = "draft-50m"
_TARGETS = {"0.5 B": GROWN, "1 B": LARGER}
_KERNELS = ("onnxruntime", "openvino")
_GREEDY = SamplingParams()
_LOW, _USUAL = (SamplingParams(temperature=t, top_p=0.95, seed=0) for t in (0.2, 0.7))
# Those of the bundle with a head and an ordinary draft, and of the one with a parallel draft.
_NEEDS_DRAFT, _NEEDS_HEAD = ("model", "hybrid"), ("head", "headed")
_ORDINARY = ("lookup", *_NEEDS_DRAFT, *_NEEDS_HEAD, drafting.AUTO)
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
        entrants: bundles, what is added to the names of their drafters, and those drafters.

    """

    target: str
    kernels: str
    samplings: tuple[SamplingParams, ...]
    entrants: tuple[tuple[Path, str, tuple[str, ...]], ...]


def drafts(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure every drafter on code and chats, greedy and at temperature 0.7."""
    if not suite.bundles.grows:
        return _given(suite, recorder)
    rows: list[Row] = []
    for name, preset in _TARGETS.items():
        ordinary = suite.bundles.bundle("int4", target=preset, draft=_DRAFT, head=True)
        other = suite.bundles.drafted_by("draft_parallel")
        parallel = other.bundle("int4", target=preset, draft=_DRAFT)
        entrants = ((ordinary, "", _ORDINARY), (parallel, ", parallel draft", _PARALLEL))
        for kernels in _KERNELS:
            case = _Case(name, kernels, (_GREEDY, _USUAL), entrants)
            rows += _measured(suite, recorder, case)
    return rows


def _given(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure what drafts for a given target, at a temperature of 0.2 as well."""
    bundle = suite.bundles.bundle("int4", head="head" in suite.bundles.folders)
    roles = Bundle.open(bundle).manifest["roles"]
    names = drafters(roles)
    samplings = (_GREEDY, _LOW, _USUAL)
    rows: list[Row] = []
    for kernels in kernels_of(roles):
        case = _Case("given", kernels, samplings, ((bundle, "", names),))
        rows += _measured(suite, recorder, case)
    return rows


def kernels_of(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what runs a bundle's target: OpenVINO, only if its layers keep what others keep."""
    return _KERNELS[:1] if "kv_layers" in roles["target"]["dims"] else _KERNELS


def drafters(roles: Container[str]) -> tuple[str, ...]:
    """Return what can draft in a bundle with these roles."""
    left_out = (() if "draft" in roles else _NEEDS_DRAFT) + (() if "head" in roles else _NEEDS_HEAD)
    return tuple(name for name in _ORDINARY if name not in left_out)


def asked(suite: Suite) -> dict[str, list[tuple[str, Question]]]:
    """Return chats by kind, with their names: of a file with turns the first of each category."""
    if suite.file is None or not has_turns(suite.file):
        texts = _ASKED[: suite.prompts]
        questions = [Question(str(number), "chat", (text,)) for number, text in enumerate(texts)]
    else:
        questions = read_questions(suite.file)
    kinds: dict[str, list[tuple[str, Question]]] = {}
    for question in questions:
        of_kind = kinds.setdefault(question.category, [])
        if len(of_kind) < suite.prompts:
            of_kind.append((f"{question.category} {question.id}", question))
    return kinds


def _measured(suite: Suite, recorder: Recorder, case: _Case) -> list[Row]:
    chats = asked(suite)
    code = [] if suite.file is not None and has_turns(suite.file) else suite.code()
    rows: list[Row] = []
    with _entrants(suite, case) as entrants:
        answerers = {name: QuestionAnswerer(pipeline) for name, pipeline in entrants.items()}
        for sampling in case.samplings:
            options = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
            about = {"target": case.target, "kernels": case.kernels, "T": sampling.temperature}
            recorder.add(kind="case", **about)  # of the runs that follow
            if code:
                found = compare(entrants, code, options, recorder)
                rows += [{**about, "texts": "code", **row} for row in _rows(found, recorder)]
            for kind, prompts in chats.items():
                found = compare(answerers, prompts, options, recorder)
                rows += [{**about, "texts": kind, **row} for row in _rows(found, recorder)]
    return recorder.table(rows, "drafts")


@contextmanager
def _entrants(suite: Suite, case: _Case) -> Iterator[dict[str, Pipeline]]:
    """Open plain decoding at its fastest and every drafter, on these kernels."""
    providers = {"providers": ("OpenVINO",)} if case.kernels == "openvino" else {}
    with ExitStack() as stack:
        found: dict[str, Pipeline] = {}
        for bundle, suffix, names in case.entrants:
            options = {name: suite.options(drafter=name, **providers) for name in names}
            if not found:
                options = {PLAIN: suite.plain().changed(**providers), **options}
            pipelines = stack.enter_context(opened(bundle, options))
            found |= {f"{name}{suffix}": one for name, one in pipelines.items()}
        yield found


def _rows(found: Comparison, recorder: Recorder) -> Iterator[Row]:
    """Return each drafter's figures, with tokens a target pass and milliseconds a drafted token.

    The last runs of the recorder are those of ``found``.
    """
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
