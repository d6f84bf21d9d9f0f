"""The recipe of a hybrid: what it trains is what edgedec exports, head included."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import qwen_mtp_case
from safetensors.numpy import load_file

from edgedec.export.checkpoint import Checkpoint
from edgedec.export.heads import HeadCheckpoint

TOKENS = np.random.default_rng(3).integers(0, 96, 64).tolist()


@pytest.mark.torch
def test_it_computes_what_is_exported(tmp_path: Path) -> None:
    """Over two chunks of the delta rule, in which states go over from one to the next."""
    torch = pytest.importorskip("torch", reason="torch trains it")
    from benchmarks.training.demo.hybrid_network import Hybrid, HybridDimensions
    from benchmarks.training.demo.train import export

    model = Hybrid(HybridDimensions(hidden=64, ffn=96, vocab=96, head_dim=32, state_dim=16))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3 if weight.ndim == 1 else 0.1).copy_(weight.half())
        text = torch.tensor([TOKENS])
        states = model.states(text)
        logits, ahead = model.logits(states), model.logits(model.ahead(text[:, 1:], states[:, :-1]))
    export(model, tmp_path)
    stated = json.loads((tmp_path / "config.json").read_text("utf-8"))
    stored = load_file(tmp_path / "model.safetensors")
    formulas = qwen_mtp_case.Formulas(
        {name: values.astype(np.float32) for name, values in stored.items()},
        {**stated, "rms_norm_eps": 1e-6},
    )
    own = formulas.states(TOKENS)
    head = stored["model.embed_tokens.weight"].astype(np.float32)
    np.testing.assert_allclose(own @ head.T, logits[0].numpy(), atol=1e-4)
    np.testing.assert_allclose(formulas.mtp(TOKENS[1:], own[:-1])[0], ahead[0].numpy(), atol=1e-4)
    # The control: the order in time matters by far more.
    assert np.abs(formulas.states(TOKENS[::-1]) @ head.T - logits[0].numpy()).max() > 0.1
    target = Checkpoint.open(tmp_path)
    assert not target.notes
    assert HeadCheckpoint.inside(target) is not None


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(24, 48), (48, 24)])
def test_updates_of_hidden_matrices_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    """In float32, where the processor has no bfloat16."""
    torch = pytest.importorskip("torch", reason="torch trains it")
    from benchmarks.training.demo.train import orthogonal

    gradient = torch.randn(shape, generator=torch.Generator().manual_seed(0))

    def sizes(steps: int) -> list[float]:
        made = orthogonal(gradient, (3.4445, -4.775, 2.0315), steps, 1e-7)
        assert made.dtype == torch.float32
        found: list[float] = torch.linalg.svdvals(made).tolist()
        return found

    assert 0.5 < min(sizes(5)) < max(sizes(5)) < 1.5
    assert min(sizes(1)) < 0.3  # the control
