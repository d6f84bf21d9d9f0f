"""Never slower than plain, near the best fixed length, in virtual time: no clock, no noise.

The real engine, drafters and policy on texts made up so that the draft is never right, or
mostly. Each text's whole time counts, the draft's reading of the prompt included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import demo_head
import numpy as np
import pytest
from safetensors.numpy import load_file
from scripted import Costs, Script, decode, script

from benchmarks.bundles import Bundles, Suite
from benchmarks.sections import never_slower as section
from benchmarks.sections.never_slower import loss
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.drafting.base import DraftStep
from edgedec.decoding.policy import MeasuredCost

DRAFTERS = [
    "adaptive", "text", "hybrid", "lookup", "suffix", "recycle", "model", "tree", "head", "headed",
]  # fmt: skip
# A large target with a small draft, and a small one whose draft costs a third of it.
SETTINGS = {
    "large": Costs((20e-3, 3e-3), (0.4e-3, 5e-5)),
    "small": Costs((0.6e-3, 0.17e-3), (0.2e-3, 3e-5)),
}


def seconds(costs: Costs, drafter: str, length: int | None, texts: Sequence[Script]) -> float:
    """Of all rounds of all texts."""
    return sum(found.rounds_s for found in decode(costs, drafter, length, texts))


def lost(setting: str, drafter: str, texts: Sequence[Script]) -> float:
    plain = seconds(SETTINGS[setting], "none", 0, texts)
    return seconds(SETTINGS[setting], drafter, None, texts) / plain - 1


@pytest.mark.parametrize("confidence", [0.15, 0.5])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_nothing_is_lost_where_nothing_can_be_predicted(
    setting: str, drafter: str, confidence: float
) -> None:
    texts = [script(0.0, confidence, seed) for seed in range(4)]
    assert lost(setting, drafter, texts) <= 0.02


def misleading(seed: int) -> Script:
    """A text in which what is known is every time followed by something else."""
    known, text = script(0.0, 0.5, 99).tokens[:8], script(0.0, 0.5, seed)
    tokens = list(text.tokens)
    for place in range(10, len(tokens) - 8, 13):
        tokens[place : place + 8] = known
    return replace(text, tokens=tuple(tokens))


@pytest.mark.parametrize("drafter", ["suffix", "text"])
def test_little_is_lost_where_earlier_texts_mislead(drafter: str) -> None:
    # The known part itself is copied, and what follows it is not.
    texts = [misleading(seed) for seed in range(6)]
    assert lost("large", drafter, texts) < 0.0
    assert lost("small", drafter, texts) <= 0.02


def test_a_text_that_comes_again_is_copied() -> None:
    texts = [script(0.0, 0.5, seed) for seed in (1, 2, 1, 2)]
    for drafter in ("suffix", "text", "hybrid"):
        assert lost("large", drafter, texts) < -0.3
    # The control: without earlier texts there is nothing to copy.
    assert lost("large", "lookup", texts) > -0.02


@pytest.mark.parametrize("drafter", ["adaptive", "hybrid", "model", "tree"])
def test_a_long_prompt_is_not_read_for_nothing(drafter: str) -> None:
    # Reading it takes the draft as long as 80 plain rounds of the target.
    texts = [script(0.0, 0.5, seed, prompt=1500) for seed in range(3)]
    assert lost("small", drafter, texts) <= 0.02


def test_a_long_prompt_is_read_where_that_pays() -> None:
    texts = [script(0.9, 0.9, seed, prompt=600) for seed in range(3)]
    best = min(seconds(SETTINGS["large"], "model", n, texts) for n in (2, 4, 6, 8))
    assert seconds(SETTINGS["large"], "adaptive", None, texts) < best / 0.93


# Right 19 times in 20, and knowing nothing at first: the best length is long and found late.
@pytest.mark.parametrize(("right", "kept"), [(0.6, 0.95), (0.8, 0.95), (0.95, 0.9)])
@pytest.mark.parametrize("drafter", ["adaptive", "hybrid", "model", "head", "headed"])
def test_predictable_text_comes_near_the_best_fixed_length(
    drafter: str, right: float, kept: float
) -> None:
    setting = SETTINGS["large"]
    texts = [script(right, right, seed) for seed in range(3)]
    best = min(seconds(setting, "model", length, texts) for length in (1, 2, 3, 4, 6, 8, 12))
    assert seconds(setting, drafter, None, texts) < best / kept


@pytest.mark.slow
@pytest.mark.nightly
def test_one_odd_text_does_not_poison_the_next() -> None:
    # The draft is right six times as often as it claims.
    good, odd = [script(0.9, 0.15, seed) for seed in range(12)], script(0.0, 0.15, 99)

    def last_s(*before: Script) -> float:
        texts = (decode(SETTINGS["large"], "adaptive", None, [*before, one]) for one in good[5:])
        return sum(found[-1].rounds_s for found in texts)

    calm = last_s(*good[:5])
    assert last_s(*good[:5], odd) < 1.03 * calm
    # And what was learned is not learned again: the first text of a pipeline takes longer.
    assert calm < 0.99 * last_s()


def test_a_head_of_noise_is_one_of_the_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made once, and is nothing like the trained one but in size."""
    heads: list[Path] = []

    def bundle(self: Bundles, weights: str, **chosen: Any) -> Path:
        if chosen.get("head"):
            heads.append(self.checkpoint("head"))
        return tmp_path

    def race(bundle: Path, ways: Any, work: Any, recorder: Any, pair: str) -> Row:
        return {}

    monkeypatch.setattr(Bundles, "bundle", bundle)
    monkeypatch.setattr(section, "_race", race)
    suite = Suite(Bundles(demo_head.MODELS, tmp_path / "work"), tmp_path, 1)
    recorder = Recorder(lambda row: None, "never_slower")
    for _ in range(2):
        pairs = {row["pair"] for row in section.never_slower(suite, recorder)}
        assert pairs == {"shipped", "grown", "shipped, head of noise"}
    assert len(set(heads)) == 1
    noise, trained = (
        load_file(folder / "model.safetensors") for folder in (heads[0], demo_head.MODELS / "head")
    )
    assert {name: one.shape for name, one in noise.items()} == {
        name: one.shape for name, one in trained.items()
    }

    def alike(name: str, other: Mapping[str, np.ndarray]) -> float:
        both = (one[name].astype(np.float32).ravel() for one in (trained, other))
        return float(np.corrcoef(*both)[0, 1])

    assert abs(alike("lm_head.weight", noise)) < 0.01
    assert alike("lm_head.weight", trained) > 0.99  # the control


def test_the_bench_counts_losses_and_their_upper_end() -> None:
    assert loss([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0)
    found, upper = loss([1.0] * 8, [1.1, 0.9] * 4)
    assert found == pytest.approx(0.0)
    assert 0.03 < upper < 0.1
    assert loss([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])[1] == pytest.approx(-0.5)


# -- twins that must fail ---------------------------------------------------------------------


class NeverStops(MeasuredCost):
    def go_on(self, step: DraftStep) -> bool:
        super().go_on(step)
        return step.nodes < 4


class ReadsAll(MeasuredCost):
    def _worth_catching_up(self, step: DraftStep) -> bool:
        return True


class Forgets(MeasuredCost):
    def begin(self, remaining: int) -> None:
        self._drafters.clear()
        super().begin(remaining)


@pytest.mark.parametrize(
    ("twin", "test"),
    [
        *((NeverStops, lambda one=one:
           test_nothing_is_lost_where_nothing_can_be_predicted("small", one, 0.5))
          for one in ("adaptive", "text", "hybrid", "recycle", "model", "tree", "head")),
        (ReadsAll, lambda: test_a_long_prompt_is_not_read_for_nothing("adaptive")),
        pytest.param(
            Forgets, lambda: test_one_odd_text_does_not_poison_the_next(),
            marks=[pytest.mark.slow, pytest.mark.nightly],
        ),
    ],
)  # fmt: skip
def test_a_broken_policy_is_slower(
    twin: type, test: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgedec.loading.engine.MeasuredCost", twin)
    with pytest.raises(AssertionError):
        test()
