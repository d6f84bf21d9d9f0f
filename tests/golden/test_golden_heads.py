"""Heads compute what the code of speculators computes, at every depth (see record_heads.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from heads_case import CASES, DRAFTED, FOLDER, LENGTH, STEPS, TARGET, checkpoint, inputs
from tiny_models import MemoryTensors, random_stored

from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx.heads import write_head
from edgedec.models.heads import HeadSpec
from edgedec.models.registry import spec_for
from edgedec.runtimes.onnx.head import OnnxHead

ANCHORS = (0, 3, 6)


def exported(case: str, folder: Path, **changed: object) -> OnnxHead:
    target = spec_for(TARGET)
    head = HeadCheckpoint.open(checkpoint(case, folder / "head"), target)
    spec: HeadSpec = head.spec.changed(**changed)
    options = GraphOptions("tiny", weights="fp32", taps=spec.taps)
    write_model(target, MemoryTensors(random_stored(target)), folder, options)
    write_head(spec, head.tensors, head.ids, folder, GraphOptions("tiny", weights="fp32"))
    return OnnxHead.with_fusion(folder / "head.onnx", threads=1)


def logits(head: OnnxHead) -> list[FloatArray]:
    """Logits of the drafted tokens: of all rows, and by anchor below each."""
    tokens, states = inputs()
    carried, session = head.fuse(states), head.open(2 * LENGTH)
    session.carry(carried)
    rows = [_drafted(session.forward(TokenTree.chain(tokens.tolist()), want=Want.LOGITS))]
    for anchor in ANCHORS:
        session.rollback(0)
        tree = TokenTree.chain(tokens[: anchor + 1].tolist())
        session.carry(carried[: anchor + 1])
        row = session.forward(tree, want=Want.LOGITS)
        below = []
        for step in range(1, STEPS):
            assert row.states is not None
            session.carry(row.states[-1:].copy())
            tree.add(int(tokens[anchor + step]), len(tree) - 1)
            row = session.forward(tree, len(tree) - 1, Want.LOGITS)
            below.append(_drafted(row)[-1])
        rows.append(np.stack(below))
    session.close()
    return rows


def _drafted(scored: Pass) -> FloatArray:
    assert scored.logits is not None
    assert np.isneginf(np.delete(scored.logits, DRAFTED, axis=1)).all()
    found: FloatArray = scored.logits[:, DRAFTED].copy()
    return found


def off(case: str, head: OnnxHead) -> float:
    """Largest distance from the recorded logits."""
    known = np.load(FOLDER / f"{case}.npz")["logits"]
    whole, *below = logits(head)
    distances = [np.abs(whole - known[0]).max()]
    for anchor, rows in zip(ANCHORS, below, strict=True):
        distances += [np.abs(row - known[step, anchor]).max() for step, row in enumerate(rows, 1)]
    head.close()
    return float(max(distances))


@pytest.mark.parametrize("case", CASES)
def test_logits_at_every_depth(case: str, tmp_path: Path) -> None:
    assert off(case, exported(case, tmp_path)) < 1e-4


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        ("eagle3", {"residual": "normed"}),
        ("eagle3-qwen3", {"residual": "raw"}),
        ("eagle3.1", {"carry": "raw"}),
    ],
)
def test_other_wiring_is_far_off(case: str, changed: dict[str, object], tmp_path: Path) -> None:
    assert off(case, exported(case, tmp_path, **changed)) > 1e-2
