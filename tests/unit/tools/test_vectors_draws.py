"""The vectors of draws: edgedec still draws them, and what is broken would be noticed."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
import pytest

from edgedec.decoding.sampling import filters, state
from tools.vectors import draws, files

OPTIONS = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias",
)  # fmt: skip


def wrong_draws(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = found["rows"]
    return [case for case in found["cases"] if draws.draw(case, rows[case["row"]]) != case["token"]]


def test_draws() -> None:
    assert wrong_draws(files.read("draws.json")) == []


def test_every_option_has_draws() -> None:
    found = files.read("draws.json")
    alone = Counter(
        next(iter(case["params"])) for case in found["cases"] if len(case["params"]) == 1
    )
    together = Counter(
        name for case in found["cases"] if len(case["params"]) > 2 for name in case["params"]
    )
    assert set(alone) == set(together) == set(OPTIONS)
    assert min(case["seed"] for case in found["cases"]) == -(2**63)
    assert max(case["seed"] for case in found["cases"]) == 2**63 - 1
    sizes = {row["vocab_size"] for row in found["rows"]}
    assert min(sizes) < 8192 < max(sizes)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_ignored_is_noticed(option: str) -> None:
    found = files.read("draws.json")
    cases = [
        {**case, "params": {k: v for k, v in case["params"].items() if k != option}}
        for case in found["cases"]
        if option in case["params"]
    ]
    assert len(wrong_draws({**found, "cases": cases})) >= 5


def _last_of_equal(scores: Any, least: Any, count: int) -> Any:
    indices = np.flatnonzero(scores >= least)
    return indices[len(indices) - count :]


def _all_penalised(self: Any, logits: Any, path: Any) -> Any:
    self._generated = self._all  # the prompt counts as text
    return _applied(self, logits, path)


def _short_nucleus(scores: Any, top_p: float) -> Any:
    found = _nucleus(scores, top_p)
    return found[:-1] if len(found) > 1 else found


def _without_path(self: Any, logits: Any, path: Any) -> Any:
    return _applied(self, logits, [])


_applied, _nucleus = state.Penalties.applied, filters.nucleus
BROKEN_DRAWS: dict[str, tuple[Any, str, Any]] = {
    "of equal scores the last": (filters, "_down_to", _last_of_equal),
    "the nucleus without its last token": (filters, "nucleus", _short_nucleus),
    "penalties of the prompt": (state.Penalties, "applied", _all_penalised),
    "the path is not counted": (state.Penalties, "applied", _without_path),
}


@pytest.mark.parametrize("name", BROKEN_DRAWS)
def test_broken_draws_are_noticed(name: str, monkeypatch) -> None:
    monkeypatch.setattr(*BROKEN_DRAWS[name])
    found = files.read("draws.json")
    wrong = 0
    for case in found["cases"]:
        try:
            wrong += draws.draw(case, found["rows"][case["row"]]) != case["token"]
        except Exception:
            wrong += 1
    assert wrong >= 3


def test_a_draw_without_its_position_is_noticed() -> None:
    found = copy.deepcopy(files.read("draws.json"))
    for case in found["cases"]:
        case["prompt"] = [case["prompt"][0], *case["prompt"]]
        case["position"] += 1
    assert len(wrong_draws(found)) > 50
