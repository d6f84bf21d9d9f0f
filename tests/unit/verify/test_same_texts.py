"""What verify calls a near-tie, and what it does not excuse."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgedec.compare.interleaved import Progress
from edgedec.decoding.emission import Emission
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import InputError
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Generation, Pipeline
from edgedec.testing import FakeModel, FakeSession, TableConstraint
from edgedec.verify import near_ties
from edgedec.verify.near_ties import NearTies, rescore, width_changes
from edgedec.verify.outcomes import DecodedRequest, FirstDifference, divergence, same
from edgedec.verify.results import Verification, VerificationRow, alike
from edgedec.verify.same_texts import decode as verified
from edgedec.verify.same_texts import verify

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
            noise = streams.noise(len(prompt) + len(text), len(row), Purpose.TARGET).all()
            row = row / params.temperature + noise
        text.append(int(row.argmax()))
    return text


def generation(tokens: list[int]) -> Generation:
    """A finished text of these tokens."""
    events = [Emission(token, f"<{token}>", "target") for token in tokens]
    text = "".join(event.text for event in events)
    return Generation(text, events, 0, "length", Metrics(), 0, {})


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

    def compare(
        self, mode: str, number: int, other: list[int], count: int = 3
    ) -> FirstDifference | None:
        """What comes of holding another text against a plain one."""
        greedy = [self.plain["greedy", n] for n in range(count)]
        ties = NearTies(self.model, PROMPTS[:count], greedy)
        params = self.params[mode]
        asked = DecodedRequest(mode, "way", f"p{number}", number, PROMPTS[number], params)
        plain = self.plain[mode, number]
        return divergence(asked, generation(plain), generation(other), ties)

    def gaps(self, mode: str, number: int) -> list[tuple[float, int]]:
        """(gap in logits, runner-up) at each place of a text."""
        params, text, found = self.params[mode], self.plain[mode, number], []
        for place in range(LENGTH):
            row = self.model.logits(PROMPTS[number] + text[:place])
            if not params.greedy:
                streams = Streams(params.seed or 0)
                noise = streams.noise(len(PROMPTS[number]) + place, len(row), Purpose.TARGET).all()
                row = row + noise * params.temperature
            best, second = np.argsort(-row)[:2]
            assert best == text[place]
            found.append((float(row[best] - row[second]), int(second)))
        return found

    def changed(self, mode: str, number: int, place: int) -> list[int]:
        """The other side's text: the runner-up won at one place, and all was new after it."""
        text = list(self.plain[mode, number])
        text[place] = self.gaps(mode, number)[place][1]
        text[place + 1 :] = [0] * (LENGTH - place - 1)
        return text


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize(
    ("changes", "sampling", "message"),
    [
        ({"accept": "speculative"}, {"seed": 0}, "distribution only"),
        ({"drafter": "none"}, {"seed": 0}, "another drafter"),
        ({}, {}, "give a seed"),
    ],
)
def test_what_promises_no_text_is_refused(
    changes: dict[str, Any], sampling: dict[str, Any], message: str
) -> None:
    asked = GenerateOptions(sampling=SamplingParams(temperature=0.8, **sampling))
    with pytest.raises(InputError, match=message):
        verify("no such bundle", [("p", "a")], asked, options=OpenOptions(**changes))


def test_rescoring_is_plain_decoding_at_any_width(setting: Setting) -> None:
    model, text = FakeModel(64, sharpness=1.0), setting.plain["greedy", 0]
    expected = [model.logits(PROMPTS[0] + text[:index]) for index in range(LENGTH)]
    for width in (1, 3, 8):
        np.testing.assert_array_equal(rescore(model, PROMPTS[0], text, width), expected)
    found = width_changes(model, PROMPTS[0], text)
    assert found.gaps.max() == found.logprobs.max() == 0


def test_rescoring_a_text_that_fills_the_context(setting: Setting) -> None:
    text = setting.plain["greedy", 0]
    # The last token's keys and values are never needed.
    model = FakeModel(64, sharpness=1.0, max_context=len(PROMPTS[0]) + LENGTH - 1)
    assert rescore(model, PROMPTS[0], text, 1).shape == (LENGTH, 64)


def test_identical_texts_diverge_nowhere(setting: Setting) -> None:
    assert setting.compare("greedy", 0, setting.plain["greedy", 0]) is None


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_a_small_gap_is_a_near_tie_and_a_large_one_is_not(setting: Setting, mode: str) -> None:
    for number in range(3):
        gaps = setting.gaps(mode, number)
        for place in (
            min(range(LENGTH), key=gaps.__getitem__),
            int(np.argmax([g for g, _ in gaps])),
        ):
            found = setting.compare(mode, number, setting.changed(mode, number, place))
            assert found is not None
            assert (found.case, found.prompt, found.position) == (mode, f"p{number}", place)
            assert found.gap == pytest.approx(gaps[place][0], abs=1e-5)
            # Two logits each move by at most the wobble.
            assert found.tolerance is not None
            assert 0.5 * WOBBLE < found.tolerance < 2 * WOBBLE
            assert found.near_tie == (gaps[place][0] <= found.tolerance)
    wide = max(gap for n in range(3) for gap, _ in setting.gaps(mode, n))
    assert wide > 2 * WOBBLE  # so that the test has seen a refusal


def test_a_near_tie_is_seen_as_one(setting: Setting) -> None:
    near = [
        (n, index)
        for n in range(3)
        for index, (gap, _) in enumerate(setting.gaps("greedy", n))
        if gap < WOBBLE / 2
    ]
    assert near, "the fixture has no near-tie: choose another seed"
    number, index = near[0]
    found = setting.compare("greedy", number, setting.changed("greedy", number, index))
    assert found is not None
    assert found.near_tie


def test_what_wide_passes_change_much_is_no_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much a runtime's passes change, a gap above the limit is a difference."""
    model, plain = FakeModel(64, sharpness=1.0), Setting().plain["greedy", 0]
    ties = NearTies(model, [PROMPTS[0]], [plain])
    changes = width_changes(model, PROMPTS[0], plain)
    large = replace(changes, gaps=changes.gaps + np.float32(0.7))
    monkeypatch.setattr(near_ties, "width_changes", lambda *_: large)
    assert ties.tolerance(0, plain[:5]) == near_ties.LARGEST_NEAR_TIE < 0.7
    small = replace(changes, gaps=changes.gaps + np.float32(0.1))
    monkeypatch.setattr(near_ties, "width_changes", lambda *_: small)
    assert NearTies(model, [PROMPTS[0]], [plain]).tolerance(0, plain[:5]) == pytest.approx(0.1)


def test_a_text_that_ends_early_is_no_near_tie(setting: Setting) -> None:
    found = setting.compare("greedy", 1, setting.plain["greedy", 1][:10])
    assert found is not None
    assert (found.position, found.speculative, found.gap, found.near_tie) == (10, None, None, False)


def test_a_lone_prompt_is_measured_on_itself(setting: Setting) -> None:
    found = setting.compare("greedy", 0, setting.changed("greedy", 0, 3), count=1)
    assert found is not None
    assert found.tolerance is not None
    assert found.tolerance > 0


# A row of five tokens: what tips the choice from token 0 to another one, and by how much.
ROW = np.array([3.0, 2.9, 2.0, 1.0, -5.0], dtype=np.float32)


class OneRow(FakeModel):
    """The same logits after any text."""

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        return ROW.copy()


@pytest.mark.parametrize(
    ("params", "other", "gap"),
    [
        ({}, 1, 0.1),
        ({}, 2, 1.0),
        # Each occurrence in the text (token 0 once) takes off 0.05.
        ({"frequency_penalty": 0.05}, 1, 0.05),
        ({"logit_bias": {1: 0.07}}, 1, 0.03),
        ({"repetition_penalty": 1.01}, 1, 3 / 1.01 - 2.9),
    ],
)
def test_the_gap_is_that_of_the_processed_row(
    params: dict[str, Any], other: int, gap: float
) -> None:
    ties = NearTies(OneRow(5), [[3]], [[0]])
    found = ties.gap(SamplingParams(**params), [3], [0], (0, other))
    assert found == pytest.approx(gap, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(
    ("filters", "edge"),
    [
        # Token 1 is one short of the two that are kept, or of the mass, or of the ratio.
        ({"top_k": 1}, 0.1),
        ({"top_p": 0.35}, None),
        ({"min_p": 0.95}, 0.1 + np.log(0.95)),
    ],
)
def test_a_token_outside_a_filter_needs_what_brings_it_inside(
    filters: dict[str, Any], edge: float | None
) -> None:
    ties = NearTies(OneRow(5), [[3]], [[0]])
    # A seed whose noise prefers token 1 where both are there.
    seed = next(
        seed
        for seed in range(100)
        if np.argmax(ROW + Streams(seed).noise(1, 5, Purpose.TARGET).all()) == 1
    )
    params = SamplingParams(temperature=1.0, seed=seed, **filters)
    found = ties.gap(params, [3], [], (0, 1))
    assert found is not None
    assert 0 < found <= 0.2
    if edge is not None:
        assert found == pytest.approx(edge, rel=0.02)


@pytest.mark.parametrize(
    ("allowed", "other", "gap"),
    [({0, 2, 4}, 2, 1.0), ({0, 4}, 4, 8.0), ({0, 2}, 1, None), ({1, 3}, 3, None)],
)
def test_the_gap_counts_among_allowed_tokens(
    allowed: set[int], other: int, gap: float | None
) -> None:
    """Token 1 is nearest to token 0; a grammar refuses it, or token 0 itself."""
    ties = NearTies(OneRow(5), [[3]], [[0]])
    table = TableConstraint({0: {4: 1}, 1: dict.fromkeys(allowed, 1)}, 5)
    found = ties.gap(SamplingParams(), [3], [4], (0, other), table)
    assert found == (gap if gap is None else pytest.approx(gap, rel=1e-3))
    assert table.forced([], 1) == [4]  # it is where it was


def test_the_tolerance_is_that_of_allowed_tokens() -> None:
    class Unsteady(WobblyModel):
        """A wide pass changes token 3 alone, which is never among the likeliest."""

        def open(self, capacity: int) -> FakeSession:
            return UnsteadySession(self, capacity)

        def logits(self, tokens: Sequence[int]) -> FloatArray:
            row = np.linspace(0, 10, 64, dtype=np.float32)
            row[3] = -5
            return row

    class UnsteadySession(FakeSession):
        def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            scored = super().forward(tree, start, want)
            if scored.logits is not None and len(tree) - start > 1:
                scored.logits = scored.logits.copy()
                scored.logits[:, 3] += 0.2
            return scored

    ties = NearTies(Unsteady(64), [[1, 2]], [[63, 63, 63]])
    table = TableConstraint({0: {63: 1}, 1: {60: 0, 3: 0}}, 64)
    assert ties.tolerance(0, [63, 60]) == 0
    assert ties.tolerance(0, [63, 60], table) == pytest.approx(0.2)


def test_a_token_plain_decoding_does_not_choose_is_no_near_tie() -> None:
    ties = NearTies(OneRow(5), [[3]], [[0]])
    assert ties.gap(SamplingParams(), [3], [], (2, 1)) is None


def scored(tokens: list[int], *rows: tuple[float, list[tuple[int, float]]]) -> Generation:
    """A text with log-probabilities."""
    plain = generation(tokens)
    events = [
        event._replace(logprob=own, top_logprobs=best)
        for event, (own, best) in zip(plain.events, rows, strict=True)
    ]
    return replace(plain, events=events)


ROWS = [(-0.5, [(1, -0.5), (2, -1.5)]), (-1.5, [(7, -0.4), (2, -1.5)])]


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (1e-4, False),
        (1.0, True),
    ],
)
def test_logprobs_are_compared_number_by_number(
    setting: Setting, change: float, fails: bool
) -> None:
    ties = NearTies(setting.model, PROMPTS, [setting.plain["greedy", n] for n in range(3)])
    asked = DecodedRequest("logprobs", "way", "p0", 0, PROMPTS[0], SamplingParams())
    plain = scored([1, 2], *ROWS)
    own, best = ROWS[1]
    variants = [
        (own + change, best),
        (own, [best[0], (2, best[1][1] + change)]),
        (own, [(9, best[0][1] + change), best[1]]) if fails else (own, best),
    ]
    for variant in variants:
        other = scored([1, 2], ROWS[0], variant)
        found = divergence(asked, plain, other, ties)
        assert (found is not None) == fails
        if found is not None:
            assert (found.what, found.position, found.near_tie) == ("logprobs", 1, False)


@pytest.mark.parametrize(
    ("change", "what"),
    [({"finish_reason": "stop"}, "finish_reason"), ({"text": "<1><2"}, "text")],
)
def test_what_is_not_in_the_tokens_is_compared(
    setting: Setting, change: dict[str, str], what: str
) -> None:
    ties = NearTies(setting.model, PROMPTS, [setting.plain["greedy", n] for n in range(3)])
    asked = DecodedRequest("stop", "way", "p0", 0, PROMPTS[0], SamplingParams())
    plain = generation([1, 2])
    assert not same(plain, replace(plain, **change))
    found = divergence(asked, plain, replace(plain, **change), ties)
    assert found is not None
    assert (found.what, found.near_tie) == (what, False)


def test_greedy_text_is_compared_once() -> None:
    asked = GenerateOptions(4, SamplingParams(seed=3), ignore_eos=True)
    found = verify("demo", [("one", [5, 6, 7])], asked, options=OpenOptions(drafter="lookup"))
    assert [row.case for row in found.rows] == ["greedy"]
    penalised = replace(asked, sampling=SamplingParams(seed=3, presence_penalty=1.0))
    found = verify("demo", [("one", [5, 6, 7])], penalised, options=OpenOptions(drafter="lookup"))
    assert [row.case for row in found.rows] == ["greedy", "sampled"]


def test_nothing_drafted_shows_nothing() -> None:
    drafted, idle = (VerificationRow("", "greedy", 2, 2, 0, 0, n, 0) for n in (5, 0))
    assert Verification([drafted], 10, {}).holds
    assert not Verification([idle], 10, {}).holds


def test_prompts_are_read_from_their_first_token_on() -> None:
    """What another text left behind was computed in other passes than a near-tie's search makes."""
    prompts = [("one", "def first(a):\n"), ("two", "def first(a):\n    return a\n\n\n")]
    options = GenerateOptions(4, ignore_eos=True)
    with Pipeline.open("demo", plan="none", drafter="none") as pipeline:
        kept = [pipeline.generate(prompt, options).metrics.reused_tokens for _, prompt in prompts]
        texts = verified(pipeline, prompts, [alike("greedy", options, 2)], Progress(None))
    assert kept[1] > 0
    assert [text.metrics.reused_tokens for text in texts.values()] == [0, 0]
