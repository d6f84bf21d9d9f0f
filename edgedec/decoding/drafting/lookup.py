"""Prompt lookup: proposes the tokens that followed an earlier occurrence of the last n-gram."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from edgedec.decoding.drafting.base import (
    Drafter,
    DrafterInfo,
    DrafterParts,
    DraftLimits,
    DraftToken,
    Key,
    TokenDrafter,
)
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.tree import Draft

SHORTEST, LONGEST = 2, 8


class NgramIndex:
    """Index of where each n-gram of a growing text last occurred with a continuation.

    An n-gram is a number in base ``vocab_size + 1`` with digits token + 1, so n-grams of all
    lengths share one dictionary without collisions. A longer n-gram is entered once its shorter
    tail has occurred twice, so a token of a text that does not repeat itself costs one entry. A
    query costs as many look-ups as there are lengths, however long the text.
    """

    def __init__(self, vocab_size: int, shortest: int = SHORTEST, longest: int = LONGEST) -> None:
        self._base = vocab_size + 1
        self._shortest, self._longest = shortest, longest
        self._after: dict[int, int] = {}
        self._text: Sequence[int] = ()
        self._done = 0

    def follow(self, text: Sequence[int]) -> None:
        """Index another text; incremental if it only continues the last one."""
        if text[: self._done + 1] != self._text[: self._done + 1]:
            self._after.clear()
            self._done = 0
        self._text = text

    def forget(self) -> None:
        """Drop the index; the next ``find`` rebuilds it."""
        self._after = {}
        self._done = 0

    def find(self) -> tuple[int, int]:
        """Return where the latest earlier copy of the text's tail continues, and the match length.

        The longest match counts, and the newest of equal ones; length 0 if there is none. The text
        may have grown since the last call.
        """
        last = len(self._text) - 1
        for end in range(self._done, last):
            self._add(end)
        self._done = max(self._done, last)
        return self._match(last)

    def _add(self, end: int) -> None:
        # Only n-grams with a continuation are indexed, so the tail never finds itself.
        text, base, after, follower = self._text, self._base, self._after, end + 1
        key = 0
        for length in range(1, min(self._longest, follower) + 1):
            key = key * base + text[follower - length] + 1
            if length < self._shortest:
                continue
            before = after.get(key)
            after[key] = follower
            if before is None:
                break  # the only one of its kind: ``_match`` reads on in the text
            if before > length < self._longest:
                after.setdefault(key * base + text[before - length - 1] + 1, before)

    def _match(self, end: int) -> tuple[int, int]:
        text, base = self._text, self._base
        key, found, matched = 0, 0, 0
        most = min(self._longest, end + 1)
        for length in range(1, most + 1):
            key = key * base + text[end + 1 - length] + 1
            if length >= self._shortest:
                follower = self._after.get(key)
                if follower is None:
                    break  # no longer n-gram is entered
                found, matched = follower, length
        if not matched:
            return 0, 0
        most = min(most, found)
        while matched < most and text[found - matched - 1] == text[end - matched]:
            matched += 1
        return found, matched


class LookupDrafter(TokenDrafter):
    """Proposes what followed the longest earlier copy of the text's tail.

    Args:
        vocab_size: columns of a logits row.
        shortest: shorter n-grams are ignored.
        longest: longer n-grams are not compared.
        rivals: the drafters that are tried next, if any.

    """

    name = "lookup"

    def __init__(
        self,
        vocab_size: int,
        shortest: int = SHORTEST,
        longest: int = LONGEST,
        rivals: Sequence[str] = (),
    ) -> None:
        super().__init__(rivals)
        self._index = NgramIndex(vocab_size, shortest, longest)
        # Tokens of the text, and what was found for them.
        self._looked_up = 0, (0, 0)

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        super().begin(prompt, sampler)
        self._index.follow(sampler.history)
        self._looked_up = 0, (0, 0)

    def match(self) -> tuple[int, int]:
        """Return what ``NgramIndex.find`` does, which is looked up once a round."""
        length = len(self.sampler.history)
        if self._looked_up[0] != length:
            self._looked_up = length, self._index.find()
        return self._looked_up[1]

    def tokens(self, draft: Draft, limits: DraftLimits, streams: Streams) -> Iterator[DraftToken]:
        start, matched = self.match()
        sampler, tree = self.sampler, draft.tree
        text, end = sampler.history, len(sampler.history)
        for leaf in range(limits.nodes if matched else 0):
            here = start + leaf
            # A copy that reaches the tail repeats itself, as in LZ77.
            token = text[here] if here < end else tree.tokens[here - end + 1]
            if not sampler.permits(tree, leaf, token):
                break
            # Each drafted token lengthens the match, provided it is right.
            yield DraftToken(token, (matched + leaf) / (matched + leaf + 0.75))

    def evict(self, keep: Collection[str] = ()) -> None:
        if self.name not in keep:
            self._index.forget()


INFO = DrafterInfo(
    context_bytes=320,  # measured: a dictionary entry for each n-gram of a text that comes twice
    keys=(Key("n", "tokens of the longest n-gram that it compares", SHORTEST, 64),),
)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    longest = parts.keys.get("n", LONGEST)
    return LookupDrafter(parts.vocab_size, longest=longest, rivals=parts.rivals)
