"""Vectors of the keyed random numbers: keys, uniform numbers, Gumbel noise."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from edgedec.decoding import noise as generator
from edgedec.decoding.noise import noise_of
from edgedec.decoding.randomness import Purpose, Streams

SEEDS = (0, 1, 2, 42, -1, -3, 2**31, 2**32 + 5, 2**62 + 7, 2**63 - 1, -(2**63))
POSITIONS = (0, 1, 9, 17, 8191, 131071)
INDICES = (0, 1, 7, (1 << 24) + 5)
SIZES = (1, 2, 255, 300, 4096, 8192, 8193, 32000, 49152, 151936)
LARGEST = 262144
_FIRST_IDS, _FIRST_NOISE = 32, 16
# Values that a last bit of float64 could round to another float32 are this near to a tie.
_UNSURE = 2.0**-48


def make() -> dict[str, Any]:
    """Return ``noise.json``."""
    streams = [
        stream(seed, position, purpose, index)
        for number, seed in enumerate(SEEDS)
        for position in POSITIONS
        for purpose in Purpose
        for index in (0, INDICES[(number + purpose) % 3 + 1])
    ]
    return {"streams": streams, "noise": [noise(key, size) for key, size in _clear_positions()]}


def stream(seed: int, position: int, purpose: int, index: int) -> dict[str, Any]:
    """Return the key and the uniform number of a seed's position."""
    streams = Streams(seed, coupled=False)
    return {
        "seed": seed,
        "position": position,
        "purpose": int(purpose),
        "index": index,
        "key": str(key_of(seed, position, purpose, index)),
        "uniform": streams.uniform(position, Purpose(purpose), index),
    }


def key_of(seed: int, position: int, purpose: int = Purpose.TARGET, index: int = 0) -> int:
    """Return the key of a seed's position, an unsigned number of 64 bits."""
    return Streams(seed, coupled=False)._key(position, Purpose(purpose), index)


def noise(key: int, size: int) -> dict[str, Any]:
    """Describe the noise of a key's tokens."""
    (made,) = noise_of([key], size)
    every = made.all()
    return {
        "key": str(key),
        "vocab_size": size,
        "large_ids": made.large_ids[:_FIRST_IDS].tolist(),
        "large_count": len(made.large_ids),
        "sha256": hashlib.sha256(every.astype("<f4").tobytes()).hexdigest(),
        "first": every.view(np.uint32)[:_FIRST_NOISE].tolist(),
        "most_id": int(every.argmax()),
    }


def _clear_positions() -> list[tuple[int, int]]:
    """Return keys with vocabulary sizes whose noise is the same with any good logarithm."""
    wanted = [(size, count) for size in SIZES for count in range(6 if size < 9000 else 3)]
    found = []
    for number, (size, count) in enumerate([*wanted, (LARGEST, 0)]):
        seed, position = SEEDS[number % len(SEEDS)], 31 * count + number
        while not is_clear(key_of(seed, position), size):
            position += 1
        found.append((key_of(seed, position), size))
    return found


def is_clear(key: int, size: int) -> bool:
    """Return whether no value is so near to a rounding's tie that a logarithm's last bit decides.

    It computes the noise again, in double precision and with the steps of the gaps unrounded.
    """
    gaps = generator._gap_counters(size // 128 + 64) + np.uint64(key)
    steps = np.log(generator._uniforms(gaps, 2.0**-52)) * (1 / np.log1p(-generator._LARGE))
    if (np.abs(steps - np.round(steps)) < _UNSURE * np.maximum(1, steps)).any():
        return False
    (made,) = noise_of([key], size)
    bits = generator._bits(generator._all_counters(size) + np.uint64(key)).view(np.int64) + 0.5
    logs = np.log(bits * generator._SMALL_STEP)
    logs[made.large_ids] = np.log1p(bits[made.large_ids] * generator._LARGE_STEP)
    doubles = -np.log(-logs)
    rounded = doubles.astype(np.float32)
    if not np.array_equal(rounded, made.all()):
        raise AssertionError(f"key {key}: the noise is not what this module computes")
    other = np.nextafter(rounded, np.where(doubles > rounded, np.inf, -np.inf).astype(np.float32))
    middles = (rounded.astype(np.float64) + other) / 2
    return bool((np.abs(doubles - middles) > _UNSURE * np.maximum(1, np.abs(doubles))).all())
