"""Random numbers keyed by (seed, absolute position, purpose, token), never by call order.

A counter-based generator (splitmix64 over a keyed counter) gives any token's
number without the others', the same whoever asks first: the draft and the target see the
same noise at the same position, which is what the Gumbel coupling needs.

Logarithms are taken in float64 and rounded to float32: machines whose mathematics libraries
differ in the last bit of a float64 then still agree on the noise, up to one case in about a
hundred million.
"""

from __future__ import annotations

import enum
import functools
import hashlib
from collections import OrderedDict

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
_CACHED_ROWS = 32
# Tokens worked on at a time, so that the intermediate results stay in the processor's cache.
_BLOCK = 4096

Words = npt.NDArray[np.uint64]


class Purpose(enum.IntEnum):
    """What a number is for. Different purposes are independent streams."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RECOVER = 3


class Streams:
    """All random numbers of one request.

    Args:
        seed: any integer; equal seeds give equal numbers on every machine.
        coupled: True lets the draft draw with the target's own noise (drafter-invariant
            speculative decoding); the residual rules need False.

    """

    def __init__(self, seed: int, *, coupled: bool = True) -> None:
        self.seed = seed
        self.coupled = coupled
        self._rows: OrderedDict[tuple[int, int, int, int], FloatArray] = OrderedDict()

    def gumbel(
        self, position: int, vocab_size: int, purpose: Purpose, index: int = 0
    ) -> FloatArray:
        """Standard Gumbel noise for every token at a position, ``[vocab_size]`` float32.

        Read-only, and kept for the last positions, since draft and target ask for the same
        rows. ``index`` tells several draws at one position apart.
        """
        purpose = self._resolve(purpose)
        key = (position, purpose, vocab_size, index)
        noise = self._rows.get(key)
        if noise is None:
            noise = _gumbel(self._key(position, purpose, index), _all_counters(vocab_size))
            noise.flags.writeable = False
            self._rows[key] = noise
            if len(self._rows) > _CACHED_ROWS:
                self._rows.popitem(last=False)
        return noise

    def gumbel_of(
        self, position: int, ids: IntArray, purpose: Purpose, index: int = 0
    ) -> FloatArray:
        """The same noise for these token ids only, ``[len(ids)]`` float32."""
        purpose = self._resolve(purpose)
        return _gumbel(self._key(position, purpose, index), _counters(ids))

    def uniform(self, position: int, purpose: Purpose, index: int = 0) -> float:
        """A number in (0, 1); ``index`` tells several draws at one position apart."""
        return ((self._key(position, purpose, index) >> 12) + 0.5) * 2.0**-52

    def _resolve(self, purpose: Purpose) -> Purpose:
        return Purpose.TARGET if self.coupled and purpose is Purpose.DRAFT else purpose

    def _key(self, position: int, purpose: Purpose, index: int) -> int:
        text = f"{self.seed}/{position}/{int(purpose)}/{index}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


@functools.lru_cache(maxsize=4)
def _all_counters(vocab_size: int) -> Words:
    return _counters(np.arange(vocab_size))


def _counters(ids: IntArray) -> Words:
    """The generator's counter for each token, times its odd constant."""
    counters: Words = (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    return counters


def _gumbel(key: int, counters: Words) -> FloatArray:
    """-log(-log(u)), with one u per counter, ``[len(counters)]`` float32."""
    noise = np.empty(len(counters), dtype=np.float32)
    size = min(_BLOCK, len(counters))
    words, floats = np.empty((2, size), np.uint64), np.empty(size)
    for start in range(0, len(counters), _BLOCK):
        block = counters[start : start + _BLOCK]
        z, t, f = words[0, : len(block)], words[1, : len(block)], floats[: len(block)]
        _mix(np.add(block, np.uint64(key), out=z), t)
        # 52 bits and a half: never 0, never 1, and as fine near 1, where large Gumbel
        # values come from, as near 0.
        np.right_shift(z, _LOWEST, out=z)
        np.add(z.view(np.int64), 0.5, out=f)
        np.multiply(f, 2.0**-52, out=f)
        np.negative(np.log(f, out=f), out=f)
        np.negative(np.log(f, out=f), out=noise[start : start + _BLOCK], casting="same_kind")
    return noise


def _mix(z: Words, scratch: Words) -> None:
    """Splitmix64's finaliser, in place."""
    for shift, factor in _ROUNDS:
        np.bitwise_xor(z, np.right_shift(z, shift, out=scratch), out=z)
        np.multiply(z, factor, out=z)
    np.bitwise_xor(z, np.right_shift(z, _LAST_SHIFT, out=scratch), out=z)
