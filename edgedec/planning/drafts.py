"""Drafts that each drafter would have made on recorded texts, and how much would be accepted.

The real lookup and Token Recycling drafters run over the text; a draft model's choices were
recorded with it. Every drafter starts a round where its own last round ended, since text after a
rejection is harder to predict than average text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgedec.decoding import drafting
from edgedec.decoding.acceptance import Verdict
from edgedec.decoding.drafting.base import Drafter, DrafterParts, DraftLimits, RoundFeedback
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Pass
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.planning.survival import Survival, SurvivalEstimate
from edgedec.records.trace import Trace

# Longest draft considered, and number of ranks distinguished among a node's children.
MOST, RANKS = 16, 8
_NONE = -1


@dataclass(frozen=True, slots=True)
class Round:
    """One round on a recorded text.

    Attributes:
        source: the drafter that made the draft; empty if there was none.
        nodes: drafted tokens.
        depth: longest path among them.
        accepted: drafted tokens that match the text.

    """

    source: str
    nodes: int
    depth: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Drafts:
    """Results of one drafter's rounds.

    Attributes:
        survival: acceptance by position; its ``drafts`` is the share of rounds with a draft.
        nodes: mean number of drafted tokens of a draft, rounded up.

    """

    survival: Survival
    nodes: int


class DraftReplay:
    """A recorded text and the drafts that drafters make on it.

    Args:
        trace: with at least one token after its prompt.

    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.text = trace.tokens[trace.prompt :]
        self._asked: dict[str, list[int]] = {}

    def rounds(self, drafter: str, length: int, *, branches: int | None = None) -> Iterator[Round]:
        """Yield the rounds of a drafter whose drafts have at most ``length`` tokens.

        A draft model's trees cannot be derived from the text alone: see ``ranks``.
        """
        info = drafting.info(drafter)
        if info.estimated_by == "rounds":
            return self._run(drafter, length, branches=branches)
        asked = info.parts if info.estimated_by == "turns" else (drafter,)
        return self._chains([(name, self._right(name)) for name in asked], length)

    def ranks(self) -> Iterator[int]:
        """Yield each token's rank among the draft model's choices; ``RANKS`` if beyond."""
        if self.trace.draft is None:
            return
        for token, ids in zip(self.text, self.trace.draft.ids, strict=False):
            best = ids[:RANKS]
            yield best.index(token) if token in best else RANKS

    def _chains(self, runs: Sequence[tuple[str, Sequence[int]]], length: int) -> Iterator[Round]:
        position, end = 0, len(self.text)
        while position < end:
            drafted = min(length, end - position - 1)  # the last token is always the target's own
            source, run = next(
                ((name, of[position]) for name, of in runs if of[position] != _NONE), ("", 0)
            )
            if not source or drafted == 0:
                yield Round("", 0, 0, 0)
                position += 1
                continue
            accepted = min(run, drafted)
            yield Round(source, drafted, drafted, accepted)
            position += accepted + 1

    def _right(self, drafter: str) -> list[int]:
        """Return by position how many of a drafter's next tokens are right; ``_NONE`` if no draft.

        This uses the recorded choices of the draft model, and runs the other drafters.
        """
        if drafting.info(drafter).needs_model:
            return self._agreed
        if drafter not in self._asked:
            self._asked[drafter] = self._ask(drafter)
        return self._asked[drafter]

    @cached_property
    def _agreed(self) -> list[int]:
        if self.trace.draft is None:
            return [_NONE] * len(self.text)
        runs = [0]
        rows = list(zip(self.text, self.trace.draft.ids, strict=False))
        for token, ids in reversed(rows):
            runs.append(runs[-1] + 1 if ids[0] == token else 0)
        runs.reverse()
        return runs + [0] * (len(self.text) - len(rows))

    def _ask(self, name: str) -> list[int]:
        sampler, drafter = self._start(name, branches=1)
        runs = []
        for position, token in enumerate(self.text):
            draft = drafter.propose(sampler.history[-1], _limits(MOST), _always, sampler.streams)
            path = _followed(draft.tree, self.text[position:])
            runs.append(len(path) - 1 if draft.drafted else _NONE)
            sampler.push([token])
        return runs

    def _run(self, name: str, length: int, *, branches: int | None) -> Iterator[Round]:
        sampler, drafter = self._start(name, branches=branches)
        position, end = 0, len(self.text)
        while position < end:
            limits = _limits(min(length, end - position - 1))
            draft = drafter.propose(sampler.history[-1], limits, _always, sampler.streams)
            path = _followed(draft.tree, self.text[position:])
            accepted, tree = len(path) - 1, draft.tree
            yield Round(draft.source, draft.drafted, max(tree.depths), accepted)
            kept = self.text[position : position + accepted + 1]
            drafter.observe(self._feedback(name, tree.tokens_on(path), kept, position))
            sampler.push(kept)
            position += len(kept)

    def _feedback(
        self, source: str, path: list[int], kept: Sequence[int], position: int
    ) -> RoundFeedback:
        """Return the target's feedback along the text; nothing was recorded for wrong branches."""
        choices = self.trace.target
        rows = slice(position, position + len(path))
        ids = np.array([row[:RANKS] for row in choices.ids[rows]], np.int64)
        scored = Pass(0, ids, np.array(choices.probabilities[rows], np.float32)[:, :RANKS], None)
        draft = Draft(TokenTree.chain(path), source=source)
        return RoundFeedback(draft, Verdict(list(range(len(path))), kept[-1]), scored, kept)

    def _start(self, name: str, *, branches: int | None) -> tuple[Sampler, Drafter]:
        trace = self.trace
        vocab_size = 1 + max(max(trace.tokens), max(map(max, trace.target.ids), default=0))
        prompt = trace.tokens[: trace.prompt]
        # Nothing is drawn at random, so any seed will do.
        sampler = Sampler(SamplingParams(seed=0), vocab_size, prompt)
        drafter = drafting.create(name, DrafterParts(vocab_size, branches=branches))
        drafter.begin(prompt, sampler)
        return sampler, drafter


def measure(
    recordings: Sequence[DraftReplay], drafter: str, length: int, *, branches: int | None = None
) -> dict[str, Drafts]:
    """Return the results of a drafter's rounds over all texts, by the draft's source."""
    rounds = [
        one
        for recording in recordings
        for one in recording.rounds(drafter, length, branches=branches)
    ]
    found = {}
    for source in sorted({one.source for one in rounds if one.nodes}):
        estimate = SurvivalEstimate(length)
        own = [one for one in rounds if one.source == source and one.nodes]
        for one in rounds:
            drafted = one.source == source and one.nodes
            estimate.observe(one.depth if drafted else 0, one.accepted if drafted else 0)
        nodes = math.ceil(sum(one.nodes for one in own) / len(own))
        found[source] = Drafts(estimate.survival, nodes)
    return found


def child_chances(recordings: Sequence[DraftReplay]) -> tuple[float, ...]:
    """Return p_b: the probability that the target takes a node's first, second, ... child.

    Empty if no draft model's choices were recorded.
    """
    ranks = [rank for recording in recordings for rank in recording.ranks()]
    return tuple(ranks.count(rank) / len(ranks) for rank in range(RANKS)) if ranks else ()


def _followed(tree: TokenTree, text: Sequence[int]) -> list[int]:
    """Return the path of a tree that matches a text, without its last token, the target's own."""
    path = [0]
    for token in text[:-1]:
        child = tree.child(path[-1], token)
        if child is None:
            break
        path.append(child)
    return path


def _limits(length: int) -> DraftLimits:
    return DraftLimits(length, length)


def _always(step: object) -> bool:
    return True
