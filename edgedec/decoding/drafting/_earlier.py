"""Earlier texts, by what followed their n-grams, in a bounded memory.

A text is kept as fragments: only what no kept text has, behind the tokens that lead to it. Texts
are read in bulk, with numpy, which takes a quarter of a microsecond for a token, but 80 for one at
a time. The index of prompt lookup reads it in one, but keeps sixteen times the memory for each and
forgets none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edgedec.decoding.prefill import shared_length
from edgedec.decoding.tree import IntArray

# Lengths of the n-grams that are looked up, longest first; the longest one leads to a new token.
_LENGTHS = (6, 3)
_LEAD = _LENGTHS[0]
# Tokens of a match that are compared.
LONGEST = 16
# Tokens that all owners' texts take together, and those of a corpus as many again.
MOST = 1 << 18
# Bytes of a token, with its share of an index that is at most half full.
_BYTES = 4 + 4 * 2 * len(_LENGTHS)
EARLIER_BYTES = _BYTES * MOST
_FIRST, _HALF = 1 << 13, MOST // 2
# Tokens that are read at once: fewer than fit in an empty half of the smallest size.
_CHUNK = 1 << 12
# A slot has the place of the token that followed, and how often the same one followed again.
_PLACE_BITS, _MOST_TIMES = 20, 15
_PLACE = (1 << _PLACE_BITS) - 1
# Between two fragments.
_END = -1
_BASE, _SPREAD, _BITS = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 64
_MASK = (1 << _BITS) - 1


class Match(NamedTuple):
    """An earlier copy of a text's tail.

    Attributes:
        tokens: what followed it.
        length: tokens that are equal, up to ``LONGEST``.
        times: how often the first of ``tokens`` has followed again.

    """

    tokens: list[int]
    length: int
    times: int

    def by_length(self) -> int:
        """Return the length, by which the best of several matches is chosen."""
        return self.length


_NO_MATCH = Match([], 0, 0)


class Fragments:
    """Fragments of texts, the newest last, and an index of what follows their n-grams.

    The index is a hash table without chains: of two n-grams in one slot, the newer one stays. What
    it says is compared with the fragments, so that a slot of another n-gram says nothing.

    Args:
        size: most tokens, a power of two.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ids: npt.NDArray[np.int32] = np.full(size, _END, np.int32)
        slots = 2 * len(_LENGTHS) * size
        self._slots: npt.NDArray[np.uint32] = np.zeros(slots, np.uint32)
        # Of single values, which a round reads, numpy would take its time.
        self._id, self._slot = self._ids.data, self._slots.data
        self._shift = _BITS - slots.bit_length() + 1
        self._count = 1  # a place of 0 is none

    def add(self, text: IntArray) -> bool:
        """Store the new parts of a text; return False, and store nothing, if there is no room.

        Parts that are stored already become the newest copy of their tokens.
        """
        if len(text) <= _LEAD:
            return True
        where = np.zeros(len(text), np.int64)
        where[_LEAD:] = self._kept(text)
        new = where == 0
        new[:_LEAD] = new[_LEAD]
        if new.any():
            written = new.copy()
            for back in range(1, _LEAD + 1):
                written[:-back] |= new[back:]
            tokens = np.flatnonzero(written)
            gaps = np.cumsum(np.diff(tokens, prepend=tokens[0]) > 1)
            places = self._count + np.arange(len(tokens)) + gaps
            if places[-1] + 2 > self.size:
                return False
            self._ids[places] = text[tokens]
            self._count = int(places[-1]) + 2
            where[tokens] = np.where(new[tokens], places, where[tokens])
        self._index(text, where)
        return True

    def larger(self) -> Fragments:
        """Return a copy with twice the room; counts begin anew."""
        found = Fragments(2 * self.size)
        text = self._ids[: self._count].astype(np.int64)
        found._ids[: self._count], found._count = text, self._count
        ends = np.flatnonzero(text == _END)
        where = np.arange(len(text))
        for near in range(_LEAD + 1):
            where[ends[ends + near < len(text)] + near] = 0
        found._index(text, where)
        return found

    def find(self, tail: Sequence[int], keys: Sequence[int]) -> Match:
        """Return what followed the newest copy of a text's tail.

        Args:
            tail: its last tokens, at most ``LONGEST``.

        """
        ids, slots, last = self._id, self._slot, tail[-1]
        for length, key in zip(_LENGTHS, keys, strict=True):
            slot = slots[key >> self._shift]
            place = slot & _PLACE
            if ids[place - 1] != last:
                continue
            before = ids[max(0, place - LONGEST) : place].tolist()
            alike = _alike(before, tail)
            if alike >= length:
                after = ids[place : place + LONGEST].tolist()
                end = after.index(_END) if _END in after else len(after)
                return Match(after[:end], alike, slot >> _PLACE_BITS)
        return _NO_MATCH

    def _kept(self, text: IntArray) -> IntArray:
        """Return where a copy of each token is, with the same tokens before it; 0 if there is none.

        The first ``_LEAD`` tokens are left out.
        """
        places = (self._slots[self._hashes(text, _LEAD)] & _PLACE).astype(np.int64)
        alike = places >= _LEAD
        for back in range(_LEAD + 1):
            alike &= self._ids[places - back] == text[_LEAD - back : len(text) - back]
        # Where the index has lost an n-gram, the copy of the token before it goes on.
        here = np.arange(len(places))
        found = np.maximum.accumulate(np.where(alike, here, -1))
        goes_on = np.where(found < 0, 0, places[found] + here - found)
        right = self._ids[np.minimum(goes_on, self.size - 1)] == text[_LEAD:]
        wrong = np.maximum.accumulate(np.where(right, -1, here))
        return np.where(found > wrong, goes_on, 0)

    def _index(self, text: IntArray, where: IntArray) -> None:
        """Enter the n-grams of a text by where the token after each of them is; 0 is nowhere."""
        for length in _LENGTHS:
            places = where[length:]
            entered = np.flatnonzero(places)
            slots, places = self._hashes(text, length)[entered], places[entered]
            before = self._slots[slots]
            again = self._ids[before & _PLACE] == self._ids[places]
            times = np.where(again, np.minimum((before >> _PLACE_BITS) + 1, _MOST_TIMES), 0)
            self._slots[slots] = (times << _PLACE_BITS) | places

    def _hashes(self, text: IntArray, length: int) -> IntArray:
        """Return the slot of each n-gram of this length that has a token after it."""
        ids = text.astype(np.uint64)
        keys = np.zeros(len(text) - length, np.uint64)
        for first in reversed(range(length)):
            keys = keys * np.uint64(_BASE) + ids[first : len(text) - length + first]
        found: IntArray = (keys * np.uint64(_SPREAD) >> np.uint64(self._shift)).astype(np.int64)
        return found


def _keys(tail: Sequence[int]) -> list[int]:
    """Return the keys of a text's last n-grams, in the order of their lengths."""
    key, keys = 0, [0] * len(_LENGTHS)
    for length, token in enumerate(tail[: -_LEAD - 1 : -1], 1):
        key = (key * _BASE + token) & _MASK
        if length in _LENGTHS:
            keys[_LENGTHS.index(length)] = key * _SPREAD & _MASK
    return keys


def _alike(before: Sequence[int], tail: Sequence[int]) -> int:
    """Return how many last tokens of the two are equal."""
    count = 0
    for one, other in zip(reversed(before), reversed(tail), strict=False):
        if one != other:
            break
        count += 1
    return count


class Texts:
    """The texts of one owner: what was neither read nor written for longest is forgotten.

    They are kept in two halves. Once the newer one is full the other one is forgotten; what is met
    again before then is copied to the newer.
    """

    def __init__(self) -> None:
        self.clear()

    @property
    def size(self) -> int:
        """Tokens for which memory is taken."""
        return sum(half.size for half in self._halves)

    def clear(self) -> None:
        """Forget all texts."""
        self._halves = [Fragments(_FIRST)]

    def forget_older(self) -> bool:
        """Forget the older half; return False if there is none."""
        older = self._halves[1:]
        del self._halves[1:]
        return bool(older)

    def learn(self, text: Sequence[int], start: int = 0) -> None:
        """Keep a text from a position on; what is before it was kept earlier."""
        ends = [*range(start, len(text), _CHUNK - _LEAD), len(text)]
        for begin, end in pairwise(ends):
            part = np.array(text[max(0, begin - _LEAD) : end], np.int64)
            while not self._halves[0].add(part):
                self._make_room()

    def find(self, tail: Sequence[int]) -> Match:
        """Return the longest copy of a text's tail of at most ``LONGEST`` tokens, the newest."""
        keys = _keys(tail)
        return max([half.find(tail, keys) for half in self._halves], key=Match.by_length)

    def _make_room(self) -> None:
        newer = self._halves[0]
        if newer.size < _HALF:
            self._halves = [newer.larger()]
        else:
            self._halves = [Fragments(_HALF), newer]


class EarlierTexts:
    """The texts that were read and written before, apart by owner, within ``EARLIER_BYTES``.

    The texts of the owner who had none for longest are forgotten first.

    Args:
        corpus: texts that every owner has.

    """

    def __init__(self, corpus: Texts | None = None) -> None:
        self._corpus = corpus
        self._owned: dict[str, Texts] = {}
        # By drafter, the text that it follows: its owner, the tokens, and how many are kept.
        self._followed: dict[object, tuple[str, Sequence[int], int]] = {}
        self._resting = False

    @property
    def tokens(self) -> int:
        """Tokens for which memory is taken, without the corpus."""
        return sum(texts.size for texts in self._owned.values())

    def begin(self, drafter: object, owner: str | None, text: Sequence[int]) -> list[Texts]:
        """Follow another text; return the texts that it may be compared with, the owner's first.

        Args:
            drafter: which follows one text at a time.
            owner: of the text; None keeps it for nobody.
            text: which will grow.

        """
        for one, (its, other, kept) in self._followed.items():
            if len(other) > kept:
                self._of(its).learn(other, kept)
                self._make_room()
                self._followed[one] = its, other, len(other)
        corpus = [] if self._corpus is None else [self._corpus]
        before = self._followed.pop(drafter, None)
        if owner is None or self._resting:
            return corpus
        known = 0
        if before is not None and before[0] == owner:
            # What a conversation sends again has not followed again.
            known = shared_length(before[1], text)
        self._followed[drafter] = owner, text, known
        own = self._of(owner)
        self._make_room()
        return [own, *corpus]

    def forget(self) -> None:
        """Forget all texts but the corpus; those that are being decoded are not kept either."""
        for texts in self._owned.values():
            texts.clear()
        self._owned.clear()
        self._followed.clear()

    def rest(self, *, resting: bool) -> None:
        """Forget all texts and keep no more, or keep them again from the next text on."""
        self._resting = resting
        if resting:
            self.forget()

    def _of(self, owner: str) -> Texts:
        """Return an owner's texts, which are now the last to be forgotten."""
        self._owned[owner] = self._owned.pop(owner) if owner in self._owned else Texts()
        return self._owned[owner]

    def _make_room(self) -> None:
        """Forget what others than the last owner have, while all of it is too much."""
        while self.tokens > MOST and len(self._owned) > 1:
            first = next(iter(self._owned))
            if not self._owned[first].forget_older():
                self._owned.pop(first).clear()


def corpus_of(texts: Sequence[Sequence[int]]) -> Texts:
    """Return texts that are given as token ids; of very many, the last ones."""
    found = Texts()
    for text in texts:
        found.learn(text)
    return found
