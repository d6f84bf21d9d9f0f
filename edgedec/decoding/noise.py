"""Gumbel noise for the tokens of a position, by a generator that is keyed, not called in order.

A counter-based generator (splitmix64 over a keyed counter) gives any token's number without the
others', in any order: the draft and the target see the same noise at the same position, which the
Gumbel coupling needs.

The tokens of a position whose noise is large can be listed without looking at the others, since
nearly always one of those or one of the likeliest is drawn. Which they are is drawn first: each
token is one of them with probability 1/256 and independently, so that the gaps between them are
geometric (the skips of Vitter's sequential sampling, 1984). Each token's noise then follows from
a number of its own below or above that quantile, and is standard Gumbel noise as a whole.

Logarithms are taken in float64 and rounded to float32: machines whose mathematics libraries differ
in the last bit of a float64 then agree on the noise, except in about one case in a hundred million.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray, IntArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)
_LOWEST = np.uint64(12)
# The same for numbers of Python.
_COUNT, _FIRST_FACTOR, _SECOND_FACTOR = int(_GOLDEN), int(_ROUNDS[0][1]), int(_ROUNDS[1][1])
CACHED_POSITIONS = 32
# A token's noise is among the large ones with this probability, which exceed that quantile.
_LARGE = 2.0**-8
LARGE_FROM = -math.log(-math.log1p(-_LARGE))
_SMALL_STEP = 2.0**-52 * (1 - _LARGE)
_LARGE_STEP = -(2.0**-52) * _LARGE
# How far noise in float32 may be from what Python's logarithms say, with room to spare.
CLOSE = 1e-5
# The counters of the gaps, beyond those of any token.
_GAPS = 1 << 40
# Tokens up to which numbers of Python are faster than arrays.
_FEW = 10
_WORD = (1 << 64) - 1
_PAST = np.uint64(1 << 52)
# Up to this vocabulary, making the noise of all tokens is as fast as finding those that can win,
# and draft and target share it.
SMALL_VOCABULARY = 8192
# Tokens worked on at a time, so that the intermediate results stay in the processor's cache.
_BLOCK = 4096

Words = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]


def noise_bytes(vocab_size: int) -> int:
    """Return the bytes of the noise that is kept for the last positions of a text.

    All tokens' where a vocabulary is small or a distribution flat, else that of the large ones.
    """
    every = vocab_size <= SMALL_VOCABULARY
    of_position = 4 * vocab_size if every else 20 * (int(vocab_size * _LARGE * 1.2) + 4)
    # The counters are made once, for all texts.
    return CACHED_POSITIONS * of_position + (8 * vocab_size if every else 0)


class _LargeNoise:
    """The noise of several positions' tokens of large noise, made when it is first asked for.

    Args:
        bits: the random numbers, 52 bits each, ``[positions, n]``: the smaller, the more noise.

    """

    def __init__(self, bits: Words) -> None:
        self.bits = bits
        self._noise: FloatArray | None = None

    def noise(self) -> FloatArray:
        """Return it, ``[positions, n]`` float32."""
        if self._noise is None:
            logs = _spread(self.bits, _LARGE_STEP)
            self._noise = _gumbel(np.log1p(logs, out=logs))
        return self._noise

    def about(self, row: int, column: int) -> float:
        """Return one of them, to ``CLOSE``."""
        return _large_about(self.bits.item(row, column))


class Noise:
    """Standard Gumbel noise for every token at one position.

    Args:
        large_ids: see below.
        large: the noise of these, in a row of several positions'.
        most: see below.

    Attributes:
        large_ids: the tokens whose noise is ``LARGE_FROM`` or more, ascending, int64.
        most: the most noise of any token, to ``CLOSE``.

    """

    def __init__(
        self,
        key: int,
        vocab_size: int,
        large_ids: IntArray,
        large: _LargeNoise,
        row: int,
        most: float,
    ) -> None:
        self._key, self._vocab_size = key, vocab_size
        self.large_ids, self.most = large_ids, most
        self._large, self._row = large, row
        self._all: FloatArray | None = None
        self._about: dict[int, float] = {}

    @property
    def made(self) -> bool:
        """Whether every token's noise has been made, so that ``all`` costs nothing."""
        return self._all is not None

    @property
    def large(self) -> FloatArray:
        """The noise of ``large_ids``, float32."""
        return self._large.noise()[self._row, : len(self.large_ids)]

    def large_about(self, index: int) -> float:
        """The noise of ``large_ids[index]``, to ``CLOSE``."""
        return self._large.about(self._row, index)

    def of(self, ids: IntArray) -> FloatArray:
        """The noise of these token ids, ``[len(ids)]`` float32."""
        if self._all is not None:
            return self._all[ids]
        noise = self.small(ids)
        if len(self.large_ids):
            indices = np.minimum(np.searchsorted(self.large_ids, ids), len(self.large_ids) - 1)
            return np.where(self.large_ids[indices] == ids, self.large[indices], noise)
        return noise

    def small(self, ids: IntArray) -> FloatArray:
        """The noise of token ids that are not among ``large_ids``, ``[len(ids)]`` float32."""
        return _small(_counters(ids) + np.uint64(self._key))

    def about(self, token: int) -> float:
        """One token's noise, to ``CLOSE``; of one with large noise a bound below it.

        In Python, where a token takes a microsecond and thirty calls of numpy take ten. It is kept,
        since draft and target ask for the same tokens.
        """
        known = self._about.get(token)
        if known is None:
            word = (self._key + (token + 1) * _COUNT) & _WORD
            word = ((word ^ (word >> 30)) * _FIRST_FACTOR) & _WORD
            word = ((word ^ (word >> 27)) * _SECOND_FACTOR) & _WORD
            number = (((word ^ (word >> 31)) >> 12) + 0.5) * _SMALL_STEP
            known = self._about[token] = -math.log(-math.log(number))
        return known

    def about_all(self, tokens: Sequence[int]) -> list[float]:
        """``about`` of each token."""
        known = self._about
        new = [token for token in tokens if token not in known]
        if len(new) > _FEW:
            known.update(zip(new, self.small(np.array(new)).tolist(), strict=True))
        return [self.about(token) for token in tokens]

    def all(self) -> FloatArray:
        """The noise of every token, ``[vocab_size]`` float32; read-only and kept."""
        if self._all is None:
            counters = _all_counters(self._vocab_size)
            noise = np.empty(len(counters), dtype=np.float32)
            for start in range(0, len(counters), _BLOCK):
                block = slice(start, start + _BLOCK)
                noise[block] = _small(counters[block] + np.uint64(self._key))
            noise[self.large_ids] = self.large
            noise.flags.writeable = False
            self._all = noise
        return self._all


def noise_of(keys: Sequence[int], vocab_size: int) -> list[Noise]:
    """The noise of several positions, by their keys."""
    columns = np.array(keys, np.uint64)[:, None]
    ids = _large_ids(columns, vocab_size)
    bits = _bits(_counters(ids) + columns)
    within = ids < vocab_size
    counts = np.count_nonzero(within, axis=1).tolist()
    least = bits.min(axis=1, where=within, initial=_PAST).tolist()
    large = _LargeNoise(bits)
    return [
        Noise(key, vocab_size, ids[row, :count], large, row, _large_about(least[row]))
        for row, (key, count) in enumerate(zip(keys, counts, strict=True))
    ]


def _large_ids(keys: Words, vocab_size: int) -> IntArray:
    """Tokens of large noise, ``[keys, n]`` ascending; those past the vocabulary are none.

    Args:
        keys: of the positions, ``[keys, 1]``.
        vocab_size: each row goes beyond it.

    """
    expected = vocab_size * _LARGE
    # Four standard deviations more, and a few for a small vocabulary: rarely not enough.
    count = int(expected + 4 * math.sqrt(expected)) + 4
    ids = _walked(keys, count)
    while ids[:, -1].min() < vocab_size:
        count *= 2
        ids = _walked(keys, count)
    return ids


def _walked(keys: Words, count: int) -> IntArray:
    """The first tokens of large noise, each a geometric step after the one before."""
    logs = np.log(_uniforms(_gap_counters(count) + keys, 2.0**-52))
    steps = np.multiply(logs, 1 / math.log1p(-_LARGE), out=logs).astype(np.int64) + 1
    steps[:, 0] -= 1
    ids: IntArray = np.cumsum(steps, axis=1)
    return ids


@functools.lru_cache(maxsize=4)
def _gap_counters(count: int) -> Words:
    return _counters(np.arange(_GAPS, _GAPS + count))


@functools.lru_cache(maxsize=4)
def _all_counters(vocab_size: int) -> Words:
    return _counters(np.arange(vocab_size))


def _counters(ids: IntArray) -> Words:
    """The generator's counter for each token, times its odd constant."""
    counters: Words = ids.astype(np.uint64)
    counters += np.uint64(1)
    counters *= _GOLDEN
    return counters


def _small(words: Words) -> FloatArray:
    """Noise below ``LARGE_FROM``, one for each keyed counter; overwrites them."""
    numbers = _uniforms(words, _SMALL_STEP)
    return _gumbel(np.log(numbers, out=numbers))


def _gumbel(logs: Doubles) -> FloatArray:
    """-log(-log u), given log u, in place; rounded to float32."""
    np.log(np.negative(logs, out=logs), out=logs)
    return np.negative(logs, out=logs).astype(np.float32)


def _large_about(bits: int) -> float:
    return -math.log(-math.log1p((bits + 0.5) * _LARGE_STEP))


def _uniforms(words: Words, step: float) -> Doubles:
    """Multiples of ``step``, up to 2 ** 52 times, one for each keyed counter; overwrites them."""
    return _spread(_bits(words), step)


def _spread(bits: Words, step: float) -> Doubles:
    """``step`` times each number and a half.

    52 bits and a half: never 0 and never the last, as fine at the one end as at the other.
    """
    numbers: Doubles = np.add(bits.view(np.int64), 0.5)
    return np.multiply(numbers, step, out=numbers)


def _bits(words: Words) -> Words:
    """52 random bits for each keyed counter; overwrites them."""
    _mix(words, np.empty_like(words))
    np.right_shift(words, _LOWEST, out=words)
    return words


def _mix(z: Words, scratch: Words) -> None:
    """Splitmix64's finaliser, in place."""
    for shift, factor in _ROUNDS:
        np.bitwise_xor(z, np.right_shift(z, shift, out=scratch), out=z)
        np.multiply(z, factor, out=z)
    np.bitwise_xor(z, np.right_shift(z, _LAST_SHIFT, out=scratch), out=z)
