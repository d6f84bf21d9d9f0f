"""Heads of noise, of another target, and of no numbers: what they draft never reaches a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import broken_rules
import demo_head
import kinds
import numpy as np
import pytest

from benchmarks.models.noise_head import noise_head
from edgedec import Pipeline
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.session_base import SessionBase
from edgedec.decoding.tree import TokenTree
from edgedec.errors import CheckpointError
from edgedec.hardware.clock import WallClock

PROMPT = "def read_lines(path):"
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 5},
    "penalties": {"temperature": 1.1, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 6},
}
Texts = dict[str, list[int]]
# Names in which the weights of a head overflow: in its fusion, its layer, and its scores.
OVERFLOWS = ["fc", "o_proj", "lm_head"]


def opened(bundle: Path, drafter: str, **more: Any) -> Pipeline:
    return Pipeline.open(bundle, drafter=drafter, threads=1, plan="none", **more)


def texts(pipeline: Pipeline) -> Texts:
    """The same prompt with all options, twice: then with what the head was seen to be worth."""
    return {
        f"{name} {turn}": pipeline.generate(
            PROMPT, max_new_tokens=24, ignore_eos=True, **options
        ).token_ids
        for turn in range(2)
        for name, options in OPTIONS.items()
    }


@pytest.fixture(scope="module")
def expected() -> Texts:
    with opened(demo_head.bundle(), "none") as pipeline:
        return texts(pipeline)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = noise_head(demo_head.MODELS / "head", tmp_path_factory.mktemp("noise") / "head")
    return demo_head.bundle(folder, parity=False)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target whose states mean something else to the head, and which writes the same texts."""
    target = demo_head.shuffled_target(tmp_path_factory.mktemp("foreign") / "target")
    return demo_head.bundle(target=target, parity=False)


@pytest.fixture(params=kinds.in_full(["noise", "foreign"]))
def bad(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[int, int]]:
    """The number of tokens that were drafted and accepted in all texts."""
    results: list[Any] = []
    generate = Pipeline.generate

    def kept(self: Pipeline, *args: Any, **options: Any) -> Any:
        results.append(generate(self, *args, **options))
        return results[-1]

    monkeypatch.setattr(Pipeline, "generate", kept)
    return lambda: (
        sum(one.metrics.drafted_tokens for one in results),
        sum(one.metrics.accepted_tokens for one in results),
    )


@pytest.fixture
def passes_take_as_long_as_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's time is that of passes, by their weights and rows, however busy the machine."""
    now = [0.0]
    honest = SessionBase.forward

    def forward(self: Any, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        scored = honest(self, tree, start, want)
        now[0] += 1e-9 * self._model.info.weight_bytes * (1 + (len(tree) - start) / 16)
        return scored

    monkeypatch.setattr(SessionBase, "forward", forward)
    monkeypatch.setattr(WallClock, "now", staticmethod(lambda: now[0]))


@pytest.mark.parametrize("drafter", kinds.in_full(["head", "headed"]))
def test_texts_are_the_targets(
    bad: Path, drafter: str, expected: Texts, counted: Callable[[], tuple[int, int]]
) -> None:
    with opened(bad, drafter, draft_length=3) as pipeline:
        assert texts(pipeline) == expected
    drafted, accepted = counted()
    assert drafted > 300
    assert accepted < 0.1 * drafted


@pytest.mark.usefixtures("passes_take_as_long_as_their_weights")
def test_hardly_anything_is_drafted_where_its_length_is_a_decision(
    noise: Path, expected: Texts, counted: Callable[[], tuple[int, int]]
) -> None:
    """By a fixed length it is hundreds of tokens (above), and with the trained head (below)."""
    with opened(noise, "head") as pipeline:
        assert texts(pipeline) == expected
    by_noise, right = counted()
    assert right <= 1
    assert by_noise < 50
    with opened(demo_head.bundle(), "head") as pipeline:
        assert texts(pipeline) == expected
    drafted, accepted = counted()
    assert drafted - by_noise > by_noise
    assert accepted > 0.2 * (drafted - by_noise)


def test_a_rule_that_believes_a_bad_head_is_noticed(
    bad: Path, expected: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin."""
    broken_rules.accepts_one_more(monkeypatch)
    with opened(bad, "head", draft_length=3) as pipeline:
        assert all(found != expected[name] for name, found in texts(pipeline).items())


@pytest.mark.parametrize("drafter", kinds.in_full(["head", "headed"]))
@pytest.mark.parametrize("name", kinds.in_full(OVERFLOWS))
def test_one_that_yields_nan_drafts_no_more_and_says_so(
    name: str, drafter: str, tmp_path: Path, expected: Texts, caplog: pytest.LogCaptureFixture
) -> None:
    head = demo_head.weighing(tmp_path / "head", demo_head.scaled(name, 1e38))
    with (
        np.errstate(invalid="ignore", over="ignore"),
        opened(demo_head.bundle(head, parity=False), drafter, draft_length=3) as pipeline,
    ):
        assert texts(pipeline) == expected
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(expected)
    assert all("going on without it: the draft's logits are NaN" in line for line in told)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_that_holds_nan_is_not_exported(tmp_path: Path, value: float) -> None:
    def change(name: str, values: np.ndarray) -> np.ndarray:
        if name == "fc.weight":
            values[3, 7] = value
        return values

    head = demo_head.weighing(tmp_path / "head", change)
    with pytest.raises(CheckpointError, match=r"fc\.weight contains NaN or infinite weights"):
        demo_head.bundle(head, parity=False)
