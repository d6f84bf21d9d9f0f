"""Code shared by emitters of graphs of fixed widths over a cache of fixed size."""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.export.facts import model_facts
from edgedec.models.decoder import DecoderSpec
from edgedec.models.rope import Rope

READ_ROWS = 128
# Masks a slot, or a column of logits without a token; finite, so that no sum is NaN.
HIDDEN = -4e4


def ropes(spec: DecoderSpec) -> list[Rope]:
    """Return the distinct rotary embeddings of the layers, in order of first use."""
    kept: list[Rope] = []
    for rope in spec.ropes:
        if rope is not None and rope not in kept:
            kept.append(rope)
    return kept


def windows(spec: DecoderSpec) -> list[int]:
    """Return the distinct windows of the layers; 0 is all tokens."""
    return sorted(set(spec.windows))


def mask_name(window: int) -> str:
    """Return the name of the input that hides slots; a window of 0 is all tokens."""
    return f"bias_{window}" if window else "bias"


def facts(
    spec: DecoderSpec,
    name: str,
    eos_ids: Sequence[int],
    weights: str,
    rows: Sequence[int],
    slots: int,
) -> dict[str, object]:
    """Return the facts for a runtime; see ``edgedec.runtimes._static.facts``."""
    return {
        **model_facts(spec, name, eos_ids, weights, spec.max_context),
        "slots": slots,
        "rows": list(rows),
        "read_rows": min(READ_ROWS, slots),
        "windows": windows(spec),
        "ropes": [_angles(rope, spec) for rope in ropes(spec)],
        "positions": spec.position_rows > 0,
    }


def _angles(rope: Rope, spec: DecoderSpec) -> dict[str, object]:
    """Return the parameters of a rotary embedding's cosines and sines."""
    frequencies, magnitude = rope.frequencies(spec.rotary_dim, spec.max_context)
    return {"frequencies": frequencies.tolist(), "magnitude": magnitude}
