"""Recorded texts and measured places as tests make them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgedec.records.place import Place
from edgedec.records.profile import Measured, Parity, PassTimes
from edgedec.records.trace import Choices, Trace

VOCAB = 64
WIDTHS = (1, 2, 4, 8, 16)
PLACE = Place("onnx", threads=2)
OTHER = Place("gguf", device="Vulkan0")


def measured(
    role: str = "target",
    one_row_s: float = 8e-3,
    *,
    row_s: float = 1e-3,
    place: Place = PLACE,
    **changes: object,
) -> Measured:
    """A place where each row beyond the first costs ``row_s``, and 100 tokens more 10%."""
    seconds = [one_row_s + row_s * (width - 1) for width in WIDTHS]
    times = tuple(
        PassTimes(context, WIDTHS, tuple(factor * s for s in seconds), (0.0,) * len(WIDTHS))
        for context, factor in ((100, 1.0), (200, 1.1))
    )
    found = Measured(
        role=role,
        name=f"the {role}",
        place=place,
        times=times,
        prefill_s=one_row_s / 10,
        launch_s=0.0,
        transfer_s=0.0,
        load_s=0.1,
        rss_bytes=1_000_000,
        weight_bytes=900_000,
        kv_bytes_per_token=100,
        max_context=4096,
        vocab_size=VOCAB,
        row_widths=None,
        branches=None,
        parity=Parity(1.0, 0.0, True),
        steady=True,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def trace(
    right: float | Sequence[bool] = 0.7,
    *,
    prompt: int = 20,
    count: int = 60,
    seed: int = 0,
    temperature: float = 0.0,
) -> Trace:
    """A text whose tokens a draft's first choice gets right with this chance, or where it says.

    Its second choice is right in half of the other places.
    """
    rng = np.random.default_rng(seed)
    tokens = [int(token) for token in rng.integers(0, VOCAB, prompt + count)]
    hits = list(rng.random(count) < right) if isinstance(right, float) else list(right)
    target, draft = [], []
    for token, hit in zip(tokens[prompt:], hits, strict=True):
        others = [int(t) for t in rng.permutation(VOCAB) if t != token]
        target.append((token, *others[:3]))
        order = [token, *others[:3]]
        if not hit:
            place = 1 + int(rng.random() < 0.5)
            order = others[:3]
            order.insert(place, token)
        draft.append(tuple(order))
    chances = tuple((0.7, 0.15, 0.1, 0.05) for _ in range(count))
    return Trace(
        f"text {seed}",
        temperature,
        prompt,
        tuple(tokens),
        Choices(tuple(target), chances),
        Choices(tuple(draft), chances),
    )
