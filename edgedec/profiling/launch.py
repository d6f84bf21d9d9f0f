"""Per-pass overhead outside the model: the time of a pass over no weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from edgedec.records.place import Place
from edgedec.records.profile import Measured


def with_launch(measured: Sequence[Measured]) -> list[Measured]:
    """Fill in ``launch_s``.

    If both models of a pair were measured at like places, it is the intercept, at no bytes, of the
    line through their single-row passes over their bytes of weights. Otherwise it is the intercept,
    at no rows, of the line through one and two rows, which is too high by the time of reading the
    weights.
    """
    return [dataclasses.replace(one, launch_s=_launch_s(one, measured)) for one in measured]


def _launch_s(one: Measured, measured: Sequence[Measured]) -> float:
    if not one.times:
        return 0.0
    own = one.times[0].curve
    others = [
        other
        for other in measured
        if other.role != one.role and other.times and _alike(one.place, other.place)
    ]
    least = own.at(1)
    for other in others[:1]:
        theirs, bytes_apart = other.times[0].curve.at(1), one.weight_bytes - other.weight_bytes
        if bytes_apart:
            slope = (own.at(1) - theirs) / bytes_apart
            least = min(own.at(1), theirs)
            return min(least, max(0.0, own.at(1) - slope * one.weight_bytes))
    return min(least, max(0.0, 2 * own.at(1) - own.at(2)))


def _alike(one: Place, other: Place) -> bool:
    return (one.format, one.device, one.provider, one.threads) == (
        other.format,
        other.device,
        other.provider,
        other.threads,
    )
