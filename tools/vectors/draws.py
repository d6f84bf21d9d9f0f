"""Vectors of sampling: the token drawn from given logits, for each option alone and combined.

A row of logits is a factor times the noise of a key, so that no row has to be stored. The draw is
the sampler's own, at the node after a path of drafted tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from edgedec.decoding.noise import noise_of
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.ranking import Scored
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from tools.vectors.noise import is_clear, key_of

# A factor of 1e-45 leaves few different numbers, so that most logits are equal to others; with 0
# all of them are.
ROWS = (
    (2, 1.0), (7, 3.0), (300, 1.0), (300, 0.0), (300, 1e-45), (4096, 3.0), (4096, 0.25),
    (4096, 20.0), (8192, 2.0), (8193, 2.0), (32000, 3.0), (32000, 0.05), (32000, 1e-45),
    (151936, 4.0),
)  # fmt: skip
SEEDS = (0, 1, 7, 42, 2**31, 2**62 + 7, 2**63 - 1, -1, -3, -(2**63))
# Rows on which single options are tried: small, equal logits, those before and after 8,192.
_SINGLE = (2, 4, 5, 9, 10)
_COMBINED = 160
# By how much a filter's bound may be moved without moving the token, so that sums in another order
# give the same one.
_SLACK = 1e-4

SINGLE: tuple[dict[str, Any], ...] = (
    {},
    *({"top_k": value} for value in (1, 2, 5, 50, 299, 300, 1_000_000)),
    *({"top_p": value} for value in (1e-9, 0.1, 0.5, 0.9, 0.99)),
    *({"min_p": value} for value in (1e-6, 0.02, 0.3, 0.9, 1.0)),
    *({"repetition_penalty": value} for value in (0.5, 1.1, 1.5, 1e6, 1e-6)),
    *({"presence_penalty": value} for value in (-2.0, 0.5, 1e6)),
    *({"frequency_penalty": value} for value in (-0.3, 0.7, 100.0)),
    {"logit_bias": {"3": 2.5}},
    {"logit_bias": {"0": -1e6, "1": 1.0, "2": -0.5}},
    # So far up the numbers of float32 are a sixteenth apart: ties, of which the lowest id wins.
    {"logit_bias": {str(token): 1e6 for token in range(40, 20, -1)}},
    {"logit_bias": {str(token): 1e6 for token in range(40, 20, -1)}, "top_k": 3},
)  # fmt: skip
TEMPERATURES = (0.001, 0.1, 0.3, 0.8, 1.0, 1.6, 5.0, 1e6)


def make() -> dict[str, Any]:
    """Return ``draws.json``."""
    rng = random.Random(20261125)
    asked = [*_single(rng), *_combined(rng)]
    cases = [dict(case, token=draw(case)) for case in asked if decided(case)]
    return {"rows": rows(), "cases": cases}


def rows() -> list[dict[str, Any]]:
    """Return the rows: keys whose noise is the same with any good logarithm."""
    found = []
    for number, (size, factor) in enumerate(ROWS):
        position = 1000 * number
        while not is_clear(key_of(5, position), size):
            position += 1
        found.append({"key": str(key_of(5, position)), "vocab_size": size, "factor": factor})
    return found


def draw(case: Mapping[str, Any], row: Mapping[str, Any] | None = None, **params: Any) -> int:
    """Return the token of a case.

    Args:
        case: as in the file, without the token.
        row: its row; None is that of ``ROWS``.
        params: options that replace those of the case.

    """
    given = row or rows_of_tool()[case["row"]]
    logits = row_of(given["key"], given["vocab_size"], given["factor"])
    options = {**case["params"], **params, "seed": case["seed"]}
    bias = options.get("logit_bias", {})
    options["logit_bias"] = {int(token): value for token, value in bias.items()}
    sampler = Sampler(SamplingParams(**options), len(logits), case["prompt"])
    sampler.push(case["text"])
    tree = TokenTree.chain([sampler.history[-1], *case["path"]])
    node = len(case["path"])
    scored = Scored(node, logits[None], min(8, len(logits)), Want.LOGITS)
    rows = sampler.rows(scored, tree, Purpose.TARGET)
    if rows.position(node) != case["position"]:
        raise AssertionError(f"position {rows.position(node)}, the case says {case['position']}")
    return rows.draw(node)


def decided(case: Mapping[str, Any]) -> bool:
    """Return whether the token stays the same where sums and logarithms are rounded otherwise."""
    top_p, min_p = case["params"].get("top_p", 1.0), case["params"].get("min_p", 0.0)
    moved = [
        {"top_p": min(1.0, top_p * factor) if top_p < 1 else 1.0, "min_p": min_p * around}
        for factor in (1 - _SLACK, 1 + _SLACK)
        for around in (1 - _SLACK, 1 + _SLACK)
        if min_p * around <= 1
    ]
    return {draw(case)} == {draw(case, **params) for params in moved}


@lru_cache(maxsize=1)
def rows_of_tool() -> list[dict[str, Any]]:
    """Return ``rows()``, made once."""
    return rows()


@lru_cache(maxsize=32)
def row_of(key: str, size: int, factor: float) -> FloatArray:
    """Return a row of logits."""
    (noise,) = noise_of([int(key)], size)
    logits: FloatArray = np.float32(factor) * noise.all()
    return logits


def _single(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Each option by itself, greedy and sampled; each temperature and each seed on every row."""
    for row in _SINGLE:
        for params in SINGLE:
            yield _case(rng, row, params, 0)
            yield _case(rng, row, {"temperature": 0.8, **params}, 1)
    for row in range(len(ROWS)):
        for number, temperature in enumerate(TEMPERATURES):
            yield _case(rng, row, {"temperature": temperature}, row + number)
    for number in range(len(SEEDS)):
        yield _case(rng, number % len(ROWS), {"temperature": 1.0, "top_k": 20}, number)


def _combined(rng: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(_COMBINED):
        row = rng.randrange(len(ROWS))
        names = rng.sample(("top_k", "top_p", "min_p", "penalties", "bias"), rng.randint(2, 5))
        params: dict[str, Any] = {}
        if rng.random() < 0.85:
            params["temperature"] = rng.choice((0.3, 0.7, 1.0, 1.3, 2.0))
        if "top_k" in names:
            params["top_k"] = rng.choice((1, 3, 20, 100))
        if "top_p" in names:
            params["top_p"] = rng.choice((0.3, 0.8, 0.95))
        if "min_p" in names:
            params["min_p"] = rng.choice((0.01, 0.05, 0.2))
        if "penalties" in names:
            params["repetition_penalty"] = rng.choice((0.8, 1.0, 1.2))
            params["presence_penalty"] = rng.choice((0.0, 0.6, -0.4))
            params["frequency_penalty"] = rng.choice((0.0, 0.25, -0.1))
        if "bias" in names:
            tokens = rng.sample(range(ROWS[row][0]), min(3, ROWS[row][0]))
            params["logit_bias"] = {str(token): rng.choice((-3.0, 1.5, 4.25)) for token in tokens}
        yield _case(rng, row, {k: v for k, v in params.items() if v != _DEFAULTS.get(k)}, number)


_DEFAULTS = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


def _case(rng: random.Random, row: int, params: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a case with a text in which likely tokens occur, some of them more than once."""
    size, _ = ROWS[row]
    logits = row_of(*(rows_of_tool()[row][name] for name in ("key", "vocab_size", "factor")))
    likely = np.argsort(-logits, kind="stable")[: max(2, min(12, size))].tolist()
    bias = [int(token) for token in params.get("logit_bias", {})]

    def some(least: int, most: int) -> list[int]:
        count = rng.randint(least, most)
        return [int(rng.choice([*likely, *bias, rng.randrange(size)])) for _ in range(count)]

    params = {
        name: {token: bias for token, bias in value.items() if int(token) < size}
        if name == "logit_bias" else value
        for name, value in params.items()
    }  # fmt: skip
    prompt, text, path = some(1, 6), some(0, 8), some(0, 4)
    return {
        "row": row,
        "params": params,
        "prompt": prompt,
        "text": text,
        "path": path,
        "seed": SEEDS[number % len(SEEDS)],
        "position": len(prompt) + len(text) + len(path),
    }
