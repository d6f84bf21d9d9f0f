"""Counts texts of a target that are plain decoding's, by weights and drafter, at the defaults.

A given checkpoint is made into GGUF files and ONNX bundles of usual weights; a given GGUF file or
bundle is decoded as it is. Prompts are Spec-Bench's questions by category, in the chat template of
a model that has one, and functions of HumanEval. ``auto`` runs three times, and each run decodes
both sides anew: where rows do not have the bits of a row alone, texts depend on what was drafted,
and that on measured time. Drafts of a fixed length do not, and run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bundles import Suite, Unusable
from benchmarks.race import texts
from edgedec._support.model_path import is_gguf
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.sampling import SamplingParams
from edgedec.loading.build import OpenOptions
from edgedec.loading.sources import Models
from edgedec.pipeline import GenerateOptions, Prompt
from edgedec.verify.same_texts import Texts, verify

_RUNS, _TOKENS, _LONGEST = 3, 48, 900  # runs of what drafts by measured cost
_ASKED = GenerateOptions(_TOKENS, SamplingParams(temperature=0.7, seed=0), ignore_eos=True)
_GGUF = ("q4_0", "q8_0", "q4_k_m")
_ONNX = ("int8", "auto")
# What drafts by measured cost may draft nothing here; four tokens in every round are a hard test.
_FIXED = 4
_WAYS: tuple[dict[str, Any], ...] = (
    {"drafter": "auto"},
    {"drafter": "lookup", "draft_length": _FIXED},
    {"drafter": "recycle", "draft_length": _FIXED},
)


def same_texts(suite: Suite, recorder: Recorder) -> list[Row]:
    """Count texts that are plain decoding's, greedy and with a seed, by weights and drafter."""
    rows = []
    for name, path in _models(suite):
        prompts = _prompts(suite, path)
        for way in _ways(suite, path):
            options = OpenOptions(threads=suite.threads, plan="none", **way)
            names = {"model": name, "drafter": way["drafter"], "length": way.get("draft_length")}
            rows.append(_counted(recorder, path, prompts, options, names))
    return recorder.table(rows)


def _ways(suite: Suite, path: Path) -> Iterator[dict[str, Any]]:
    yield from _WAYS
    draft = suite.bundles.folders.get("draft")
    if draft is not None:
        yield {"drafter": "model", "draft_length": _FIXED, "draft": draft}
    if (path / MANIFEST).is_file() and "head" in Bundle.open(path).manifest["roles"]:
        yield {"drafter": "head", "draft_length": _FIXED}


def _models(suite: Suite) -> Iterator[tuple[str, Path]]:
    given = suite.bundles.folders.get("target")
    if given is not None and (is_gguf(given) or (given / MANIFEST).is_file()):
        yield given.stem, given
        return
    for weights in _GGUF:
        yield f"gguf {weights}", suite.bundles.gguf("target", weights, calibration="none")
    for weights in _ONNX:
        yield f"onnx {weights}", suite.bundles.alone("onnx", "target", weights, calibration="none")


def _prompts(suite: Suite, path: Path) -> list[tuple[str, Prompt]]:
    tokenizer = Models.find(path).sources["target"][0].read_tokenizer()
    try:
        found = texts.categories(suite.prompts, tokenizer, suite.file, _LONGEST)
    except texts.NoTexts as reason:
        raise Unusable(str(reason)) from None
    return [(f"{one.kind} {one.name}", one.text) for one in found]


def _counted(
    recorder: Recorder,
    path: Path,
    prompts: list[tuple[str, Prompt]],
    options: OpenOptions,
    names: Row,
) -> Row:
    """Return how many texts of all runs are plain decoding's, and how many of those are drafted."""
    total = dict.fromkeys(("texts", "identical", "drafted_tokens", "accepted_tokens"), 0)
    largest, invariant = 0.0, False
    for run in range(_RUNS if names["length"] is None else 1):
        plain: Texts = {}
        found = verify(path, prompts, _ASKED, options=options, plain=plain)
        recorder.add(kind="verification", run=run, **names, **found.to_json())
        for name in total:
            total[name] += found.total(name)
        largest = max([largest, *(one.gap or 0.0 for one in found.divergences)])
        invariant = bool(found.plan["batch_invariant"])
    return {**names, "batch_invariant": invariant, **total, "largest_gap": largest}


SECTIONS = (same_texts,)
