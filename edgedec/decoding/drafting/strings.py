"""A small model drafts text in its own vocabulary, which is re-tokenised for the target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import exp

import numpy as np

from edgedec.decoding import drafting
from edgedec.decoding.drafting._draft_context import no_model
from edgedec.decoding.drafting._transcript import Transcript, TranscriptPlan, of_all
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftStep,
    GoOn,
    Offer,
    RoundFeedback,
)
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import Sampler, filters
from edgedec.decoding.session import Pass, Trimmable, Want
from edgedec.decoding.translation import OUTSIDE, Translation
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.errors import InputError

# Most likely draft tokens considered when sampling; the others are very unlikely.
_CANDIDATES = 64
# Up to this many tokens are computed in the pass that computes the last one.
_RIDE_ALONG = 8
# Tokens of the text, back to a word's start, that are tokenised again with the draft.
_SEAM = 16


class StringsDrafter:
    """Generates freely in the draft's tokens; the text is proposed as a chain.

    The proposal carries no distribution, as with prompt lookup: the rules treat it as certain, and
    stay lossless. If the rule couples draft and target, the draft draws common tokens with the
    target's noise for the same position. Penalties do not apply to the draft.

    The draft's session keeps what it generated: the next round computes only what the target
    changed.

    Args:
        parts: a draft session in the draft's own vocabulary, and a translation.

    """

    name = "strings"

    def __init__(self, parts: DrafterParts) -> None:
        if parts.draft is None:
            raise no_model(self.name)
        if parts.translation is None:
            raise InputError(
                f"drafter {self.name!r} is for a draft with a tokenizer of its own:"
                f" use {drafting.default(with_model=True)!r}"
            )
        self._rivals, self._prefill_at_once = parts.rivals, parts.prefill_at_once
        self._session = parts.draft
        self._translation: Translation = parts.translation
        self._text = Transcript(parts.draft, parts.translation)
        self._sampler: Sampler | None = None
        # State of the round: the text's tail and the draft in draft tokens, how many of them are
        # computed, the number of passes, and the last pass.
        self._own = TokenTree(0)
        self._pending = self._passes = 0
        self._scored: Pass | None = None

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        self._pending, self._scored = 0, None
        self._text.settle()
        shared = 0
        for mine, theirs in zip(self._text.tokens, prompt[:-1], strict=False):
            if mine != theirs:
                break
            shared += 1
        self._text.cut(shared)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        tree = TokenTree(root)
        draft = Draft(tree, source=self.name)
        length = min(limits.nodes, limits.depth, self._text.margin)
        if length <= 0 or not self._caught_up(go_on):
            return draft
        self._drop()
        plan: TranscriptPlan | None = None

        def computed() -> Pass:
            nonlocal plan
            if plan is None:
                plan = self._open(length)
            return self._computed()

        def confidence() -> float:
            best, *others = computed().top_logits[-1].tolist()
            return float(1 / (1 + sum(exp(logit - best) for logit in others)))

        offer = Offer(self.name, confidence, costly=True, rivals=self._rivals)
        drafted: list[int] = []
        while len(drafted) < length and go_on(DraftStep(offer, len(drafted), len(drafted))):
            token = self._drawn(computed(), drafted, streams)
            if self._session.length + len(self._own) >= self._session.capacity:
                break
            drafted.append(token)
            self._own.add(token, len(self._own) - 1)
        if plan is not None:
            self._keep(plan)
            draft.passes = self._passes
        self._add(tree, self._written(drafted)[:length])
        return draft

    def observe(self, feedback: RoundFeedback) -> None:
        pass  # the accepted tokens are in the sampler's history

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``; the next draft prefills the text again."""
        if self.name not in keep:
            self._drop()
            self._text.cut(0)
            if isinstance(self._session, Trimmable):
                self._session.trim()

    def close(self) -> None:
        self._session.close()

    def _add(self, tree: TokenTree, tokens: Sequence[int]) -> None:
        """Add tokens to a chain, up to the first that the constraint refuses."""
        assert self._sampler is not None, "propose() before begin()"
        for token in tokens:
            if not self._sampler.permits(tree, len(tree) - 1, token):
                break
            tree.add(token, len(tree) - 1)

    def _history(self) -> list[int]:
        assert self._sampler is not None, "propose() before begin()"
        return self._sampler.history

    def _caught_up(self, go_on: GoOn) -> bool:
        """Prefill missing tokens, or a chunk of them, if the next pass cannot include them."""
        missing = self._history()[len(self._text.tokens) : -1]
        if len(missing) <= _RIDE_ALONG:
            return True
        offer = Offer(self.name, float, costly=True)
        if not go_on(DraftStep(offer, behind=len(missing))):
            return False
        self._drop()
        self._text.prefill(missing[: self._prefill_at_once])
        return len(missing) <= self._prefill_at_once

    def _open(self, spare: int) -> TranscriptPlan:
        """Begin a round: the session holds all of the text but its end."""
        text, history = self._text, self._history()
        plan = text.plan(history[len(text.tokens) :], anew=True, spare=spare)
        early = len(plan.feed) - 1 if len(plan.feed) > _RIDE_ALONG else 0
        if early:
            base = self._session.length
            try:
                self._session.prefill(plan.feed[:early])
            finally:
                text.held += plan.feed[: self._session.length - base]
        self._own, self._passes = TokenTree.chain(plan.feed[early:]), 0
        return plan

    def _computed(self) -> Pass:
        """Return the last pass, after computing what was drafted since."""
        if self._scored is None or self._pending < len(self._own):
            self._scored = self._session.forward(self._own, self._pending, self._want())
            self._pending = len(self._own)
            self._passes += 1
        return self._scored

    def _want(self) -> Want:
        sampler = self._sampler
        assert sampler is not None
        draws = sampler.streams.coupled and not sampler.params.greedy
        return Want.LOGITS if draws else Want.TOP

    def _drawn(self, scored: Pass, drafted: list[int], streams: Streams) -> int:
        """Draw the draft's next token after the text and ``drafted``."""
        sampler = self._sampler
        assert sampler is not None
        if scored.logits is None or self._want() is Want.TOP:
            return int(scored.top_ids[-1, 0])
        params, scores = sampler.params, scored.logits[-1] * sampler.inverse_temperature
        ids = filters.survivors(scores, params) if params.filtered else None
        if ids is None or len(ids) > _CANDIDATES:
            ids = filters.largest(scores, _CANDIDATES)
        keys = self._translation.to_target[ids]
        keys = np.where(keys == OUTSIDE, self._translation.target_columns + ids, keys)
        ahead = len(drafted)
        if (self._translation.to_target[drafted] == OUTSIDE).any():
            ahead = len(self._written(drafted))
        columns = self._translation.target_columns + len(self._translation.to_target)
        noise = streams.noise(len(sampler.history) + ahead, columns, Purpose.DRAFT)
        return int(ids[int((scores[ids] + noise.of(keys)).argmax())])

    def _written(self, drafted: Sequence[int]) -> list[int]:
        """Return the draft in the target's tokens that follow the text."""
        if not drafted:
            return []
        history, starts = self._history(), self._translation.word_starts
        index = len(history) - 1
        while index and len(history) - index < _SEAM and not starts[history[index]]:
            index -= 1
        return self._translation.speller.write(history[index:], drafted)

    def _keep(self, plan: TranscriptPlan) -> None:
        """Commit the round: the text, and the computed part of the draft."""
        text, history = self._text, self._history()
        self._session.commit(range(self._pending))
        text.held += self._own.tokens[: self._pending]
        self._pending = 0
        new = history[len(text.tokens) :]
        before = max(0, len(text.tokens) - plan.anchor)
        text.record(plan, new, of_all(plan.ends, before + len(new)))

    def _drop(self) -> None:
        """End an open round, even one that an exception left unfinished."""
        if self._pending:
            self._session.commit([])
        self._pending, self._scored = 0, None
        # A round begins with a new token.
        if self._sampler is not None and len(self._text.tokens) >= len(self._sampler.history):
            self._text.cut(len(self._sampler.history) - 1)


INFO = DrafterInfo(needs_model=True, by_text=True, planned=False)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return StringsDrafter(parts)
