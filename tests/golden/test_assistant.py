"""Gemma 4's assistants compute what transformers computes (see record_assistant.py)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assistant_case import (
    CASES,
    FOLDER,
    HIDDEN,
    NEAR,
    ROWS,
    STEPS,
    WHOLE,
    Formulas,
    checkpoint,
    config,
    inputs,
    tensors,
)
from tiny_models import MemoryTensors, canonical_tensors, random_stored

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, StateError
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx.heads import write_head
from edgedec.models.decoder import DecoderSpec
from edgedec.models.registry import spec_for
from edgedec.runtimes.onnx.assistant import OnnxAssistant

TOLERANCE = 1e-4
TARGET = json.loads((FOLDER.parent / "gemma4_text.json").read_text("utf-8"))["config"]


def off(case: str, root: int = ROWS, seen: int = ROWS, **text: Any) -> float:
    """Largest distance of the formulas' drafted logits, and states, from the recorded ones."""
    stated, known = config(case, **text), np.load(FOLDER / f"{case}.npz")
    formulas = Formulas(tensors(stated), stated)
    tokens, embedded, state, cache = inputs()
    cache = {kind: (keys[:, :seen], values[:, :seen]) for kind, (keys, values) in cache.items()}
    distances = []
    for step, token in enumerate(tokens):
        logits, state = formulas.step(embedded[token], state, cache, root)
        drafted = np.isfinite(logits)
        distances.append(np.abs(logits - known["logits"][step])[drafted].max())
        distances.append(np.abs(state - known["states"][step]).max())
        # What is not drafted is below everything that is.
        assert known["logits"][step][~drafted].max(initial=-np.inf) < logits[drafted].min()
    return float(max(distances))


@pytest.mark.parametrize("case", CASES)
def test_formulas(case: str) -> None:
    assert off(case) < TOLERANCE


@pytest.mark.parametrize(
    "wrong",
    [
        {"root": ROWS - 1, "seen": ROWS - 1},
        {"sliding_window": 8},
        {"rope_parameters": config("assistant")["text_config"]["rope_parameters"] | {
            WHOLE: {"rope_theta": 500.0}}},
    ],
    ids=["stale", "window", "rotation"],
)  # fmt: skip
def test_a_wrong_detail_is_far_off(wrong: dict[str, Any]) -> None:
    assert off("assistant", **wrong) > 100 * TOLERANCE


class Target:
    """What a session of the target lends, of ``inputs()``; the slots after it hold garbage."""

    length = ROWS

    def __init__(self, spec: DecoderSpec, cache: Mapping[str, tuple[Any, Any]]) -> None:
        self._spec, self._cache = spec, cache

    def lend(self, layer: int) -> tuple[FloatArray, FloatArray]:
        kind = NEAR if self._spec.windows[layer] else WHOLE
        keys, values = (
            np.concatenate([part, np.full_like(part[:, :3], 1e4)], axis=1)
            for part in self._cache[kind]
        )
        return keys, values


def drafted(case: str, folder: Path, weights: str = "fp32", **changed: Any) -> list[Any]:
    """Logits and handed-on states of each step, as the graph computes them and as formulas do."""
    target = spec_for(TARGET)
    stored = canonical_tensors(target, random_stored(target))
    head = HeadCheckpoint.open(checkpoint(case, folder / "head"), target)
    spec, options = head.spec.changed(**changed), GraphOptions("tiny", weights=weights)
    write_model(target, MemoryTensors(stored), folder, options)
    write_head(spec, head.tensors, head.ids, folder, options)
    model = OnnxAssistant.load(folder / "head.onnx", threads=1)
    tokens, _, carried, cache = inputs()
    session, own = model.open(8), carried
    session.borrow(Target(target, cache))
    formulas = Formulas(tensors(config(case)), config(case))
    embedded, found = stored["model.embed_tokens.weight"] * np.sqrt(np.float32(HIDDEN)), []
    tree = TokenTree(int(tokens[0]))
    for step, token in enumerate(tokens):
        expected, carried = formulas.step(embedded[token], carried, cache, ROWS)
        session.carry(own[None])
        row = session.forward(tree, step, Want.LOGITS)
        assert row.logits is not None
        assert row.states is not None
        own = row.states[0]
        found.append((row.logits[0], own, expected, carried, row.top_ids[0]))
        if step < STEPS - 1:
            tree.add(int(tokens[step + 1]), step)
    session.close()
    model.close()
    return found


@pytest.mark.parametrize("case", CASES)
def test_graphs(case: str, tmp_path: Path) -> None:
    for logits, state, expected, carried, top in drafted(case, tmp_path):
        np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(state, carried, rtol=0, atol=TOLERANCE)
        assert top.tolist() == np.argsort(-expected)[: len(top)].tolist()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantised_graphs_are_close(weights: str, tmp_path: Path) -> None:
    """The states of the first step, which no other choice of clusters precedes."""
    _, state, _, carried, _ = drafted("assistant-routed", tmp_path, weights)[0]
    assert 0 < np.abs(state - carried).std() < (0.05 if weights == "int8" else 0.4) * carried.std()


def test_a_window_that_is_not_cut_is_far_off(tmp_path: Path) -> None:
    """The control: of the layers, which read the target's last ones of their kind."""
    target = spec_for(TARGET)
    head = HeadCheckpoint.open(checkpoint("assistant", tmp_path / "h"), target)
    assert head.spec.borrows == (1, 1, 1, 2)
    layer = dataclasses.replace(head.spec.layer, windows=(0, 0, 0, 0))
    logits, _, expected, *_ = drafted("assistant", tmp_path / "m", layer=layer)[0]
    assert np.abs(logits - expected).max() > 100 * TOLERANCE


def test_a_cache_of_other_sizes_is_refused(tmp_path: Path) -> None:
    drafted("assistant", tmp_path)
    model = OnnxAssistant.load(tmp_path / "head.onnx", threads=1)
    session, cache = model.open(8), inputs()[-1]
    wide = {kind: tuple(part.repeat(2, axis=0) for part in parts) for kind, parts in cache.items()}
    with pytest.raises(BundleError, match=r"1 heads of 16 channels of layer 1, .* are 2 of 16"):
        session.borrow(Target(spec_for(TARGET), wide))
    with pytest.raises(StateError, match=r"borrow\(\) first"):
        session.forward(TokenTree(1))
    session.close()
    model.close()
