"""What verify calls a near-tie, and what it does not excuse."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgedec.assembly import OpenOptions
from edgedec.bench.replay import replay, width_changes
from edgedec.bench.verify import Verification, _Comparison, verify
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError
from edgedec.pipeline import GenerateOptions
from edgedec.testing import FakeModel, FakeSession

WOBBLE = 0.02
LENGTH = 40
PROMPTS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]


class WobblySession(FakeSession):
    """Rows of a wide pass differ a little from those of a single one, as int4 kernels' do."""

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        scored = super().forward(tree, start, want)
        if scored.logits is not None and len(tree) - start > 1:
            rng = np.random.default_rng(len(tree) + sum(tree.tokens))
            noise = rng.uniform(-WOBBLE, WOBBLE, scored.logits.shape)
            scored.logits = scored.logits + noise.astype(np.float32)
        return scored


class WobblyModel(FakeModel):
    def open(self, capacity: int) -> FakeSession:
        return WobblySession(self, capacity)


def decode(model: FakeModel, prompt: list[int], params: SamplingParams) -> list[int]:
    """Plain decoding, written out."""
    text: list[int] = []
    for _ in range(LENGTH):
        row = model.logits(prompt + text)
        if not params.greedy:
            streams = Streams(params.seed or 0)
            noise = streams.gumbel(len(prompt) + len(text), len(row), Purpose.TARGET)
            row = row / params.temperature + noise
        text.append(int(row.argmax()))
    return text


class Setting:
    """Plain texts of both modes, and how close each token's runner-up came."""

    def __init__(self) -> None:
        self.model = WobblyModel(64, sharpness=1.0)
        self.params = {
            "greedy": SamplingParams(),
            "sampled": SamplingParams(temperature=0.7, seed=5),
        }
        self.plain = {
            (mode, n): decode(self.model, prompt, params)
            for mode, params in self.params.items()
            for n, prompt in enumerate(PROMPTS)
        }

    def comparison(self, count: int = 3) -> _Comparison:
        pipeline: Any = SimpleNamespace(target=self.model, tokenizer=SimpleNamespace(encode=None))
        prompts = [(f"p{n}", prompt) for n, prompt in enumerate(PROMPTS[:count])]
        modes = {m: GenerateOptions(LENGTH, params) for m, params in self.params.items()}
        plain = {key: text for key, text in self.plain.items() if key[1] < count}
        return _Comparison(pipeline, prompts, modes, plain)

    def gaps(self, mode: str, number: int) -> list[tuple[float, int]]:
        """(gap, runner-up) at each place of a text."""
        params, text, found = self.params[mode], self.plain[mode, number], []
        for place in range(LENGTH):
            row = self.model.logits(PROMPTS[number] + text[:place])
            if not params.greedy:
                streams = Streams(params.seed or 0)
                noise = streams.gumbel(len(PROMPTS[number]) + place, len(row), Purpose.TARGET)
                row = row / params.temperature + noise
            best, second = np.argsort(-row)[:2]
            assert best == text[place]
            found.append((float(row[best] - row[second]), int(second)))
        return found

    def changed(self, mode: str, number: int, place: int) -> dict[tuple[str, int], list[int]]:
        """The other side's texts: the runner-up won at one place, and all was new after it."""
        text = list(self.plain[mode, number])
        text[place] = self.gaps(mode, number)[place][1]
        text[place + 1 :] = [0] * (LENGTH - place - 1)
        return {**self.plain, (mode, number): text}


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize(
    ("changes", "sampling", "message"),
    [
        ({"accept": "speculative"}, {}, "distribution only"),
        ({"draft": "none"}, {}, "another drafter"),
        ({}, {"logit_bias": {3: 1.0}}, "and no more"),
        ({}, {"top_k": 3}, "and no more"),
    ],
)
def test_what_promises_no_text_is_refused(
    changes: dict[str, Any], sampling: dict[str, Any], message: str
) -> None:
    params = SamplingParams(temperature=0.8, seed=0, **sampling)
    with pytest.raises(InputError, match=message):
        verify("no such bundle", [("p", "a")], sampling=params, options=OpenOptions(**changes))


def test_replay_is_plain_decoding_at_any_width(setting: Setting) -> None:
    model, text = FakeModel(64, sharpness=1.0), setting.plain["greedy", 0]
    expected = [model.logits(PROMPTS[0] + text[:place]) for place in range(LENGTH)]
    for width in (1, 3, 8):
        np.testing.assert_array_equal(replay(model, PROMPTS[0], text, width), expected)
    assert width_changes(model, PROMPTS[0], text).max() == 0


def test_replay_of_a_text_that_fills_the_context(setting: Setting) -> None:
    text = setting.plain["greedy", 0]
    # The last token's keys and values are never needed.
    model = FakeModel(64, sharpness=1.0, max_context=len(PROMPTS[0]) + LENGTH - 1)
    assert replay(model, PROMPTS[0], text, 1).shape == (LENGTH, 64)


def test_identical_texts_diverge_nowhere(setting: Setting) -> None:
    assert setting.comparison().divergences(dict(setting.plain)) == []


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_a_small_gap_is_a_near_tie_and_a_large_one_is_not(setting: Setting, mode: str) -> None:
    scale = 1.0 if mode == "greedy" else 1 / 0.7
    for number in range(3):
        gaps = setting.gaps(mode, number)
        for place in (
            min(range(LENGTH), key=gaps.__getitem__),
            int(np.argmax([g for g, _ in gaps])),
        ):
            (found,) = setting.comparison().divergences(setting.changed(mode, number, place))
            assert (found.mode, found.prompt, found.position) == (mode, f"p{number}", place)
            assert found.gap == pytest.approx(gaps[place][0], abs=1e-5)
            # Two logits each move by at most the wobble.
            assert 0.5 * WOBBLE * scale < found.tolerance < 2 * WOBBLE * scale
            assert found.near_tie == (gaps[place][0] <= found.tolerance)
    wide = max(gap for n in range(3) for gap, _ in setting.gaps(mode, n))
    assert wide > 2 * WOBBLE * scale  # so that the test has seen a refusal


def test_a_near_tie_is_seen_as_one(setting: Setting) -> None:
    near = [
        (n, place)
        for n in range(3)
        for place, (gap, _) in enumerate(setting.gaps("greedy", n))
        if gap < WOBBLE / 2
    ]
    assert near, "the fixture has no near-tie: choose another seed"
    number, place = near[0]
    (found,) = setting.comparison().divergences(setting.changed("greedy", number, place))
    assert found.near_tie


def test_a_text_that_ends_early_is_no_near_tie(setting: Setting) -> None:
    other = {**setting.plain, ("greedy", 1): setting.plain["greedy", 1][:10]}
    (found,) = setting.comparison().divergences(other)
    assert (found.position, found.speculative, found.gap, found.near_tie) == (10, None, None, False)


def test_a_lone_prompt_is_measured_on_itself(setting: Setting) -> None:
    plain = {key: text for key, text in setting.plain.items() if key[1] == 0}
    other = {**plain, ("greedy", 0): setting.changed("greedy", 0, 3)["greedy", 0]}
    (found,) = setting.comparison(count=1).divergences(other)
    assert found.tolerance > 0


def test_nothing_drafted_shows_nothing() -> None:
    assert Verification(2, 2, 10, 5, 3, {}).holds
    assert not Verification(2, 2, 10, 0, 0, {}).holds
