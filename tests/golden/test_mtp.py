"""MTP layers compute and draft what their formulas do, written out in numpy."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import mimo_case
import numpy as np
import pytest
import qwen_mtp_case
from mimo_case import PROMPT
from seen_drafts import Seen

from edgedec import Pipeline
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.heads import HeadCheckpoint
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx.heads import write_head
from edgedec.runtimes.onnx.head import OnnxHead
from edgedec.runtimes.onnx.model import OnnxModel

TOLERANCE = 3e-4
TOKENS = np.random.default_rng(2).integers(0, 340, 24).tolist()
STEPS = 3
CASES = pytest.mark.parametrize("case", [mimo_case, qwen_mtp_case], ids=["mimo", "qwen3_5"])


def exported(case: ModuleType, folder: Path, **changed: object) -> tuple[OnnxModel, OnnxHead]:
    """Both graphs of a random checkpoint, with other wiring of its head."""
    target = Checkpoint.open(case.checkpoint(folder / "model"))
    head = HeadCheckpoint.inside(target)
    assert head is not None
    spec, options = head.spec.changed(**changed), GraphOptions("tiny", weights="fp32")
    shows = GraphOptions("tiny", weights="fp32", taps=spec.taps)
    write_model(target.spec, target.tensors, folder, shows)
    write_head(spec, head.tensors, head.ids, folder, options)
    return OnnxModel.load(folder, threads=1), OnnxHead.with_fusion(folder / "head.onnx", threads=1)


def logits(model: OnnxModel, head: OnnxHead) -> FloatArray:
    """Logits of all pairs of a text, and of those below its last one, with the layer's states."""
    session, own = model.open(len(TOKENS)), head.open(2 * len(TOKENS))
    scored = session.forward(TokenTree.chain(TOKENS), want=Want.TOP | Want.STATES)
    assert scored.states is not None
    own.carry(head.fuse(scored.states)[:-1])
    tree, rows = TokenTree.chain(TOKENS[1:]), []
    row = own.forward(tree, want=Want.LOGITS)
    for _ in range(STEPS):
        assert row.logits is not None
        assert row.states is not None
        rows.append(row.logits.copy())
        tree.add(int(row.logits[-1].argmax()), len(tree) - 1)
        own.carry(row.states[-1:].copy())
        row = own.forward(tree, len(tree) - 1, Want.LOGITS)
    session.close()
    own.close()
    model.close()
    head.close()
    return np.concatenate(rows)


def expected(case: ModuleType) -> FloatArray:
    formulas = case.Formulas(case.weights(case.config()), case.config())
    following, states, rows = TOKENS[1:], formulas.states(TOKENS)[:-1], []
    for _ in range(STEPS):
        scores, own = formulas.mtp(following, states)
        rows.append(scores if not rows else scores[-1:])
        following = [*following, int(scores[-1].argmax())]
        states = np.concatenate([states, own[-1:]])
    return np.concatenate(rows)


@CASES
def test_logits_at_every_depth(case: ModuleType, tmp_path: Path) -> None:
    assert np.abs(logits(*exported(case, tmp_path)) - expected(case)).max() < TOLERANCE


@pytest.mark.parametrize(
    ("case", "changed", "first"),
    [
        (mimo_case, {"state_first": False}, 0),
        (mimo_case, {"target_norm": True}, 0),
        (mimo_case, {"taps": (1,)}, 0),
        (mimo_case, {"carry": "normed"}, len(TOKENS) - 1),
        (qwen_mtp_case, {"state_first": True}, 0),
        (qwen_mtp_case, {"target_norm": False}, 0),
        (qwen_mtp_case, {"carry": "raw"}, len(TOKENS) - 1),
    ],
)
def test_other_wiring_is_far_off(
    case: ModuleType, changed: dict[str, object], first: int, tmp_path: Path
) -> None:
    off = np.abs(logits(*exported(case, tmp_path, **changed)) - expected(case)).max(axis=1)
    assert off[first] > 100 * TOLERANCE
    assert off[:first].max(initial=0) < TOLERANCE


@CASES
def test_drafted_tokens(case: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    options = ExportOptions(
        case.checkpoint(tmp_path / "model"), tmp_path / "b", weights="fp32", calibration="none",
        parity=False,
    )  # fmt: skip
    export_bundle(options)
    with Pipeline.open(tmp_path / "b", drafter="head", draft_length=3) as pipeline:
        pipeline.generate(PROMPT, max_new_tokens=30, ignore_eos=True)
    assert sum(len(drafted) for *_, drafted in seen.drafts) > 60
    assert seen.wrong(case.Formulas(case.weights(case.config()), case.config())) == []
    # The control: another order of the halves.
    other = case.weights(case.config())
    other[case.PRODUCT] = np.concatenate(np.split(other[case.PRODUCT], 2, axis=1)[::-1], axis=1)
    assert len(seen.wrong(case.Formulas(other, case.config()))) > 10
