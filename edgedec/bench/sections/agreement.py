"""Compares the texts of one model in several formats, token for token.

Where two texts diverge, the gap between the two tokens is compared with how much the formats' gaps
differ elsewhere: a near-tie lies within the 99.9th percentile of those differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.bench.records import Recorder
from edgedec.bench.verification.near_ties import PERCENTILE, SAMPLE
from edgedec.bench.verification.width_changes import CANDIDATES, replay
from edgedec.decoding.session import Model
from edgedec.decoding.tree import FloatArray
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline

Row = dict[str, Any]
Texts = list[list[int]]


def agreement(
    models: Mapping[str, tuple[Path, OpenOptions]],
    prompts: Sequence[tuple[str, str]],
    recorder: Recorder,
    *,
    tokens: int = 128,
) -> list[Row]:
    """Compare each model's greedy texts with those of the first.

    Args:
        models: by name, what to open and how; the first is the reference.
        prompts: (name, text) pairs.
        recorder: gets a record for each divergence and a summary for each model.
        tokens: of each text; an end-of-text token does not end it.

    """
    texts: dict[str, Texts] = {}
    encoded: Texts = []
    for name, (path, options) in models.items():
        with Pipeline.open(path, options) as pipeline:
            encoded = [pipeline.tokenizer.encode(text) for _, text in prompts]
            texts[name] = [_text(pipeline, ids, tokens) for ids in encoded]
    reference, *others = models
    rows = []
    for name in others:
        pair = models[reference], models[name]
        diverging = [i for i, text in enumerate(texts[name]) if text != texts[reference][i]]
        ties = 0
        if diverging:
            with Pipeline.open(*pair[0]) as a, Pipeline.open(*pair[1]) as b:
                divergences = _Divergences(a.target, b.target, encoded, texts[reference])
                for number in diverging:
                    found = divergences.divergence(number, texts[name][number])
                    ties += found["near_tie"]
                    recorder.add(kind="divergence", model=name, prompt=prompts[number][0], **found)
        rows.append(
            {
                "reference": reference,
                "model": name,
                "texts": len(prompts),
                "identical": len(prompts) - len(diverging),
                "near_ties": ties,
                "unexplained": len(diverging) - ties,
            }
        )
        recorder.add(kind="summary", **rows[-1])
    return rows


class _Divergences:
    """Judges where the texts of two models diverge, by how much their gaps differ elsewhere."""

    def __init__(self, one: Model, two: Model, prompts: Texts, texts: Texts) -> None:
        self._one, self._two = one, two
        self._prompts, self._texts = prompts, texts
        self._changes: dict[int, FloatArray] = {}

    def divergence(self, number: int, other: list[int]) -> Row:
        """Return where a text diverges from the reference, and whether that is a near-tie."""
        text = self._texts[number]
        place = next(i for i, (a, b) in enumerate(zip(text, other, strict=True)) if a != b)
        row = replay(self._one, self._prompts[number], text[: place + 1], 1)[place]
        gap = abs(float(row[text[place]] - row[other[place]]))
        tolerance = self._tolerance(number)
        return {
            "position": place,
            "tokens": [text[place], other[place]],
            "gap": gap,
            "tolerance": tolerance,
            "near_tie": gap <= tolerance,
        }

    def _tolerance(self, number: int) -> float:
        others = [n for n in range(len(self._prompts)) if n != number] or [number]
        for other in others[:SAMPLE]:
            if other not in self._changes:
                self._changes[other] = self._change(other)
        pooled = np.concatenate([self._changes[other] for other in others[:SAMPLE]])
        return float(np.percentile(pooled, PERCENTILE))

    def _change(self, number: int) -> FloatArray:
        prompt, text = self._prompts[number], self._texts[number]
        rows = [replay(model, prompt, text, 1) for model in (self._one, self._two)]
        best = np.argsort(-rows[0], axis=1, kind="stable")[:, :CANDIDATES]
        chosen = [np.take_along_axis(row, best, axis=1) for row in rows]
        gaps = [logits[:, :1] - logits[:, 1:] for logits in chosen]
        changes: FloatArray = np.abs(gaps[0] - gaps[1]).ravel()
        return changes


def _text(pipeline: Pipeline, prompt: Sequence[int], tokens: int) -> list[int]:
    return pipeline.generate(prompt, GenerateOptions(tokens, ignore_eos=True)).token_ids
