"""An assistant is taught as it drafts: with the same cache, position and states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch and transformers not installed")
pytest.importorskip(
    "transformers.models.gemma4_assistant", reason="a transformers without Gemma 4's assistants"
)

import torch
import transformers
from assistant_case import HIDDEN, NEAR, WHOLE, Formulas, pair
from safetensors.numpy import load_file

from benchmarks.training import assistant as recipe

LENGTH = 24


def read(folder: Path) -> tuple[Any, dict[str, Any]]:
    stated = json.loads((folder / "config.json").read_text("utf-8"))
    config = transformers.AutoConfig.for_model(**stated)
    config._attn_implementation = config.get_text_config()._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    weights = {
        name: torch.from_numpy(one) for name, one in load_file(folder / "model.safetensors").items()
    }
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    return model, stated


def off(folder: Path, late: int = 0) -> float:
    """Largest distance of taught logits from the formulas', of all steps below some roots."""
    (target, _), (assistant, stated) = (read(folder / name) for name in ("target", "head"))
    tokens = np.random.default_rng(3).integers(0, stated["text_config"]["vocab_size"], (1, LENGTH))
    lesson = recipe.Lesson(target, torch.from_numpy(tokens))
    with torch.no_grad():
        found = [logits[0].numpy() for logits, _ in lesson.steps(assistant)]
    formulas = Formulas(load_file(folder / "head" / "model.safetensors"), stated)
    embedded, states = (one[0].numpy() for one in (lesson.embedded, lesson.states))
    assert embedded.shape == (LENGTH, HIDDEN)
    distances = []
    for root in (2, 9, LENGTH - recipe.STEPS):
        seen = root - late
        cache = {
            kind: tuple(part[0, :, :seen].numpy() for part in lesson.cache[kind])
            for kind in (NEAR, WHOLE)
        }
        state = states[root - 1]
        for step in range(recipe.STEPS):
            logits, state = formulas.step(embedded[root + step], state, cache, seen)
            distances.append(np.abs(logits - found[step][root - 1]).max())
    return float(max(distances))


def test_what_is_taught_is_what_is_drafted(tmp_path: Path) -> None:
    pair("assistant", tmp_path)
    assert off(tmp_path) < 1e-3


def test_a_cache_of_one_token_less_is_far_off(tmp_path: Path) -> None:
    pair("assistant", tmp_path)
    assert off(tmp_path, late=1) > 0.1
