"""Random numbers keyed by (seed, absolute position, purpose, token), never by call order.

A counter-based generator (splitmix64's finaliser over a keyed counter) gives any token's
number without the others', the same whoever asks first: the draft and the target see the
same noise at the same position, which is what the Gumbel coupling needs.
"""

from __future__ import annotations

import enum
import hashlib
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

from edgedec.decoding.tree import FloatArray, IntArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_CACHED_POSITIONS = 64


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
        self._cache: OrderedDict[tuple[int, int, int, int], FloatArray] = OrderedDict()

    def gumbel(
        self, position: int, vocab_size: int, purpose: Purpose, index: int = 0
    ) -> FloatArray:
        """Standard Gumbel noise for every token at a position, ``[vocab_size]`` float32.

        Kept for the last positions, since draft and target ask for the same rows.
        ``index`` tells several draws at one position apart.
        """
        purpose = self._resolve(purpose)
        key = (position, int(purpose), vocab_size, index)
        noise = self._cache.get(key)
        if noise is None:
            counter = np.arange(1, vocab_size + 1, dtype=np.uint64)
            noise = _gumbel(self._key(position, purpose, index), counter)
            noise.flags.writeable = False
            self._cache[key] = noise
            if len(self._cache) > _CACHED_POSITIONS:
                self._cache.popitem(last=False)
        return noise

    def gumbel_of(
        self, position: int, ids: IntArray, purpose: Purpose, index: int = 0
    ) -> FloatArray:
        """The same noise for these token ids only, ``[len(ids)]`` float32."""
        purpose = self._resolve(purpose)
        counter = ids.astype(np.uint64) + np.uint64(1)
        return _gumbel(self._key(position, purpose, index), counter)

    def uniform(self, position: int, purpose: Purpose, index: int = 0) -> float:
        """A number in (0, 1); ``index`` tells several draws at one position apart."""
        counter = np.ones(1, dtype=np.uint64)
        return float(_uniform(self._key(position, purpose, index), counter)[0])

    def _resolve(self, purpose: Purpose) -> Purpose:
        return Purpose.TARGET if self.coupled and purpose is Purpose.DRAFT else purpose

    def _key(self, position: int, purpose: Purpose, index: int) -> np.uint64:
        text = f"{self.seed}/{position}/{int(purpose)}/{index}".encode()
        key: np.uint64 = np.uint64(
            int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        )
        return key


def _mix(key: np.uint64, counter: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Splitmix64: the counter times an odd constant, offset by the key, finalised."""
    z: npt.NDArray[np.uint64] = counter * _GOLDEN
    z += key
    z ^= z >> np.uint64(30)
    z *= _MIX_1
    z ^= z >> np.uint64(27)
    z *= _MIX_2
    z ^= z >> np.uint64(31)
    return z


def _uniform(key: np.uint64, counter: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    # 52 bits and a half: never 0 and never 1.
    uniform: npt.NDArray[np.float64] = ((_mix(key, counter) >> np.uint64(12)) + 0.5) * 2.0**-52
    return uniform


def _gumbel(key: np.uint64, counter: npt.NDArray[np.uint64]) -> FloatArray:
    # log1p keeps the tail that wins races exact: a small u is a large Gumbel value.
    race = -np.log1p(-_uniform(key, counter))
    noise: FloatArray = (-np.log(race)).astype(np.float32)
    return noise
