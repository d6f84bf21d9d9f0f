"""Pairs that write a given text, whatever is drafted, with passes in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.decoding.drafting._earlier import EarlierTexts
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import OnStates, Pass, Tapped, Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.loading.engine import build_engine
from edgedec.records.place import Place
from edgedec.records.plan import SEQUENTIAL, Plan
from edgedec.testing import TappedFakeModel
from edgedec.testing.paced import PacedModel, PacedSession
from tests.virtual_time import VirtualClock

VOCAB = 64
# Columns of a target's states.
STATE = 8
_SLACK = 128


@dataclass(frozen=True)
class Script:
    """A text, and each model's choices at every position after the prompt, best first.

    Attributes:
        prompt: number of ``tokens`` that are the prompt.
        tokens: prompt and text.
        drafted: the draft model's choices.
        confidence: probability of a first choice of the draft model.

    """

    prompt: int
    tokens: tuple[int, ...]
    drafted: tuple[tuple[int, ...], ...]
    confidence: float


def script(
    right: float, confidence: float, seed: int, *, prompt: int = 40, count: int = 256
) -> Script:
    """Random tokens; the draft's first choice is right with this chance, its others never."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCAB, prompt + count).tolist()
    drafted = []
    for token in tokens[prompt:]:
        others = [int(t) for t in rng.permutation(VOCAB) if t != token][:7]
        drafted.append(((token if rng.random() < right else others[0]), *others[1:]))
    return Script(prompt, tuple(tokens), tuple(drafted), confidence)


class _Scripted(TappedFakeModel):
    """Rows that depend on the position alone, and states that say nothing."""

    def __init__(self, *, draft: bool, ahead: int = 0) -> None:
        super().__init__(VOCAB)
        self._draft, self._ahead = draft, ahead
        self.follow(Script(1, (0, 0), ((0, 1),), 0.5))

    def follow(self, script: Script) -> None:
        """Write this text from now on."""
        self._script = script
        self._rows: dict[int, FloatArray] = {}

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        place = min(len(tokens) + self._ahead, len(self._script.tokens) - 1)
        if place not in self._rows:
            self._rows[place] = self._row(place)
        return self._rows[place]

    def states(self, tokens: Sequence[int]) -> FloatArray:
        return np.zeros(STATE, np.float32)

    def _row(self, place: int) -> FloatArray:
        script, row = self._script, np.full(VOCAB, -30.0, np.float32)
        if not self._draft:
            row[script.tokens[place]] = 0.0
        elif place >= script.prompt:
            best, *others = script.drafted[place - script.prompt]
            row[others] = np.log((1 - script.confidence) / len(others))
            row[best] = np.log(script.confidence)
        return row


class _Session(PacedSession):
    """Shows its states, or is a head's, which reads them."""

    def tap(self, on_states: OnStates | None) -> None:
        assert isinstance(self._session, Tapped)
        self._session.tap(on_states)

    def carry(self, rows: FloatArray) -> None:
        """They decide nothing."""

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        return super().forward(tree, start, want | Want.STATES)


class _Paced(PacedModel):
    """The target, the draft model, or a head of the target: its pair p has token p + 1."""

    reads, state_width = (1, 3), STATE

    def open(self, capacity: int) -> _Session:
        return _Session(self, self._model.open(capacity))

    blank = open

    def fuse(self, states: FloatArray) -> FloatArray:
        return states


@dataclass(frozen=True)
class Costs:
    """Seconds of passes: one row's, and each further row's; a prompt's tokens take a tenth.

    Attributes:
        contention: how much slower a pass is that begins while the other model computes.

    """

    target: tuple[float, float]
    draft: tuple[float, float] = (1e-3, 1e-4)
    contention: float = 1.0


def decode(
    costs: Costs, drafter: str, length: int | None, texts: Sequence[Script],
    *, schedule: str = SEQUENTIAL,
) -> list[Metrics]:  # fmt: skip
    """Decode the texts one after the other, as one pipeline would; plain if nothing drafts."""
    with VirtualClock() as clock:
        busy_until = {"target": 0.0, "draft": 0.0}

        def seconds(role: str, cost: tuple[float, float], rows: int) -> float:
            other = busy_until["draft" if role == "target" else "target"]
            factor = costs.contention if clock.now() < other else 1.0
            found = factor * _seconds(cost, rows)
            busy_until[role] = clock.now() + found
            return found

        of_draft = ("draft", costs.draft)
        scripted = [
            _Scripted(draft=False), _Scripted(draft=True), _Scripted(draft=True, ahead=1)
        ]  # fmt: skip
        target, draft, head = (
            _Paced(model, lambda rows, _, of=of: seconds(*of, rows), clock)  # type: ignore[misc]
            for model, of in zip(
                scripted, (("target", costs.target), of_draft, of_draft), strict=True
            )
        )
        capacity = max(len(text.tokens) for text in texts) + _SLACK
        plan = Plan(
            Place("fake", "target"), Place("fake", "draft"), drafter, length, schedule=schedule
        )
        parts = DrafterParts(
            VOCAB, draft.open(capacity), head=head, head_session=head.open(capacity),
            earlier=EarlierTexts(),
        )  # fmt: skip
        engine = build_engine(plan, target.open(capacity), parts, clock)
        found = []
        for text in texts:
            for model in scripted:
                model.follow(text)
            metrics = Metrics()
            prompt = text.tokens[: text.prompt]
            sampler = Sampler(SamplingParams(), VOCAB, prompt, owner="")
            stop = StopRule(max_new_tokens=len(text.tokens) - text.prompt)
            for _ in engine.run(Request(prompt, sampler, stop), metrics):
                pass
            found.append(metrics)
        engine.drafter.close()
        return found


def _seconds(cost: tuple[float, float], rows: int) -> float:
    one_s, row_s = cost
    return one_s + row_s * (rows - 1) if rows <= 32 else rows * one_s / 10
