"""A small model drafts text in its own vocabulary, which is re-tokenised for the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp

import numpy as np

from edgedec.decoding import drafting
from edgedec.decoding.drafting._context import DraftContext, no_model
from edgedec.decoding.drafting._translated import TranslatedSession
from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftToken,
    GoOn,
)
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import filters
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.translation import OUTSIDE
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.errors import InputError

# Most likely draft tokens considered when sampling; the others are very unlikely.
_CANDIDATES = 64
# Tokens of the text, back to a word's start, that are tokenised again with the draft.
_SEAM = 16


class StringsDrafter(ModelDrafter):
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
        self._translation = parts.translation
        self._session = TranslatedSession(parts.draft, parts.translation)
        self._reader = DraftContext(
            replace(parts, draft=self._session, translation=None), self.name
        )
        super().__init__(parts, self._reader)
        # The text's tail and the draft in draft tokens, and how many of them are computed.
        self._own, self._computed = TokenTree(0), 0

    def shows(self, streams: Streams) -> bool:
        return False

    def ready(self, limits: DraftLimits, go_on: GoOn) -> DraftLimits:
        known = len(self.sampler.history) - 1
        if self._computed or self._session.length > known:  # a round that was never settled
            self._computed = 0
            self._reader.cut(known)
        margin = self._session.widest
        return super().ready(DraftLimits(min(limits.nodes, margin), limits.depth), go_on)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        own = super().propose(root, limits, go_on, streams)
        draft = Draft(TokenTree(root), source=self.name, passes=own.passes)
        if own.passes:
            new, computed = self._new(), self._own.tokens[: self._computed]
            self._computed = 0
            self._session.finish(new, computed)
            self._reader.hold(new)
        for node, token in enumerate(self._written(own.tree.tokens[1:])):
            if node == limits.nodes or not self.sampler.permits(draft.tree, node, token):
                break
            draft.tree.add(token, node)
        return draft

    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        own = self._own = TokenTree.chain(self._session.start(self._new(), limits.nodes))
        while True:
            scored = self._session.inner.forward(own, self._computed, self._want())
            self._computed = len(own)
            draft.passes += 1
            token = self._drawn(scored, draft.tree.tokens[1:], streams)
            best, *others = scored.top_logits[-1].tolist()
            yield DraftToken(token, 1 / (1 + sum(exp(logit - best) for logit in others)))
            own.add(token, len(own) - 1)

    def _new(self) -> list[int]:
        """Return the text's tokens that the session lacks, with the root."""
        return [*self._reader.missing(), self.sampler.history[-1]]

    def _want(self) -> Want:
        sampler = self.sampler
        draws = sampler.streams.coupled and not sampler.params.greedy
        return Want.LOGITS if draws else Want.TOP

    def _drawn(self, scored: Pass, drafted: list[int], streams: Streams) -> int:
        """Draw the draft's next token after the text and ``drafted``."""
        sampler = self.sampler
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
        history, starts = self.sampler.history, self._translation.word_starts
        index = len(history) - 1
        while index and len(history) - index < _SEAM and not starts[history[index]]:
            index -= 1
        return self._translation.speller.write(history[index:], drafted)


INFO = DrafterInfo(needs_model=True, by_text=True, planned=False)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return StringsDrafter(parts)
