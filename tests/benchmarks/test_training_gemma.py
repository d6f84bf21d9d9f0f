"""The recipe of a Gemma 4: what it trains is what edgedec exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgedec.export.checkpoint import Checkpoint
from edgedec.export.reference import Reference

pytest.importorskip("torch", reason="torch and transformers not installed")
pytest.importorskip(
    "transformers.models.gemma4_assistant", reason="a transformers without Gemma 4's assistants"
)

import torch

from benchmarks.training.demo.gemma import Gemma, GemmaDimensions, convert
from benchmarks.training.demo.network import Decoder, Dimensions
from benchmarks.training.demo.train import export

DIMENSIONS = GemmaDimensions(
    vocab_size=96, hidden_size=64, intermediate_size=48, head_dim=16, global_head_dim=32,
    sliding_window=8, hidden_size_per_layer_input=8, vocab_size_per_layer_input=96,
)  # fmt: skip
TOKENS = np.random.default_rng(3).integers(0, 96, 32).tolist()


def test_it_computes_what_is_exported(tmp_path: Path) -> None:
    model = Gemma(DIMENSIONS, seed=1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3).copy_(weight.half())
        trained = model(torch.tensor([TOKENS]))[0].numpy()
    export(model, tmp_path)
    opened = Checkpoint.open(tmp_path)
    assert not opened.notes
    reference = Reference(opened.spec, opened.tensors)
    np.testing.assert_allclose(reference.logits(TOKENS), trained, atol=1e-3)
    # The control: the order in time matters by far more.
    assert np.abs(reference.logits(TOKENS[::-1]) - trained).max() > 0.1
    assert opened.spec.lender(4) == 2  # as E2B, by the last layer of its kind


def test_it_begins_as_the_decoder_it_is_converted_from() -> None:
    """The norms that the decoder lacks keep the mean size, so that much of it is kept."""
    draft = Decoder(
        Dimensions(hidden=64, ffn=48, layers=2, heads=4, kv_heads=2, head_dim=16, vocab=96)
    )
    model = Gemma(replace(DIMENSIONS, sliding_window=64), seed=1)  # all of the text
    tokens = torch.tensor([TOKENS])
    with torch.no_grad():
        for weight in draft.parameters():
            weight.normal_(mean=float(weight.ndim == 1), std=0.2)
        wanted = draft(tokens)
        before = model(tokens)
        convert(draft, model, tokens)
        found = model(tokens)

    def like(logits: torch.Tensor) -> float:
        return float(torch.corrcoef(torch.stack((logits.flatten(), wanted.flatten())))[0, 1])

    assert like(found) > 0.8
    assert abs(like(before)) < 0.3  # the control
