"""Random numbers keyed by (seed, absolute position, purpose, token), never by call order."""

from __future__ import annotations

import enum
import hashlib
from collections import OrderedDict

from edgedec.decoding.noise import CACHED_POSITIONS, Noise, noise_of

# Positions whose large noise is drawn in one go.
_AT_ONCE = 16


class Purpose(enum.IntEnum):
    """Purpose of a number; different purposes are independent streams."""

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
        self._noise: OrderedDict[tuple[int, int, int, int], Noise] = OrderedDict()

    def noise(self, position: int, vocab_size: int, purpose: Purpose, index: int = 0) -> Noise:
        """The noise of a position's tokens.

        Kept for the last positions, since draft and target ask for the same. ``index`` tells
        several draws at one position apart.
        """
        purpose = Purpose.TARGET if self.coupled and purpose is Purpose.DRAFT else purpose
        noise = self._noise.get((position, purpose, vocab_size, index))
        if noise is not None:
            return noise
        # A text is drawn position after position, and together they cost little more than one.
        until = position + (1 if index else _AT_ONCE)
        keys = [self._key(at, purpose, index) for at in range(position, until)]
        drawn = noise_of(keys, vocab_size)
        for at, noise in enumerate(drawn, position):
            self._noise[at, purpose, vocab_size, index] = noise
        while len(self._noise) > CACHED_POSITIONS:
            self._noise.popitem(last=False)
        return drawn[0]

    def uniform(self, position: int, purpose: Purpose, index: int = 0) -> float:
        """A number in (0, 1); ``index`` tells several draws at one position apart."""
        return ((self._key(position, purpose, index) >> 12) + 0.5) * 2.0**-52

    def _key(self, position: int, purpose: Purpose, index: int) -> int:
        text = f"{self.seed}/{position}/{int(purpose)}/{index}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
