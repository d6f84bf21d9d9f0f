"""Checks that a profile's numbers are possible: a stored profile may be damaged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from edgedec.errors import ProfileError
from edgedec.records.profile import Measured, PassTimes, Profile
from edgedec.records.rounds import DrafterRounds

ROLES = ("target", "draft", "head")
# Bounds of any measurement: a pass takes between a millionth of a nanosecond and months.
_LEAST_S, _MOST_S = 1e-15, 1e7
_MOST_BYTES, _MOST_TOKENS, _MOST_COUNT = 1 << 60, 1 << 40, 1 << 20
_LEAST_FACTOR, _MOST_FACTOR = 1e-3, 1e6
_MOST_TEMPERATURE = 1e3
# Probabilities are sums of rounded numbers.
_ROUNDED = 1e-6


def check(profile: Profile) -> None:
    """Refuse numbers that no measurement can give, so that planning need not check them.

    Raises:
        ProfileError: names the first one that is wrong.

    """
    _within("draft_overhead_s", profile.draft_overhead_s, 0, _MOST_S)
    _within("head_overhead_s", profile.head_overhead_s, 0, _MOST_S)
    _within("busy", profile.busy or 0.0, 0, 1)
    seen = [(one.role, one.place) for one in profile.measured]
    if len(set(seen)) != len(seen):
        raise ProfileError("measured: a place comes twice")
    for one in profile.measured:
        _check_measured(one)
    for met in profile.contention:
        for factor in (met.target_factor, met.draft_factor):
            _within("contention", factor, _LEAST_FACTOR, _MOST_FACTOR)
    for rounds in profile.rounds:
        _check_rounds(rounds)


def _check_measured(one: Measured) -> None:
    if one.role not in ROLES:
        raise ProfileError(f"role: expected one of {', '.join(ROLES)}")
    _within("load_s", one.load_s, 0, _MOST_S)
    for name in ("rss_bytes", "weight_bytes", "kv_bytes_per_token", "process_bytes",
                 "scratch_bytes_per_token"):  # fmt: skip
        _within(name, getattr(one, name), 0, _MOST_BYTES)
    _within("agreement", one.parity.agreement, 0, 1 + _ROUNDED)
    _within("threads", one.place.threads, 0, _MOST_COUNT)
    for core in one.place.cores or ():
        _within("cores", core, 0, _MOST_COUNT)
    _within("weight_memory", one.place.weight_memory or 1, 1, _MOST_BYTES)
    if one.place.cores == ():
        raise ProfileError("cores: expected one or more")
    # A place that failed has no other figures.
    least = 1 if one.parity.usable else 0
    _within("max_context", one.max_context, least, _MOST_TOKENS)
    _within("vocab_size", one.vocab_size, least, _MOST_TOKENS)
    _within("prefill_s", one.prefill_s, _LEAST_S if least else 0, _MOST_S)
    if one.row_widths is not None:
        _check_ascending("row_widths", one.row_widths, 1, _MOST_COUNT)
    if least or one.times:
        _check_ascending("contexts", [times.context for times in one.times], 0, _MOST_TOKENS)
    for times in one.times:
        _check_times(times)


def _check_times(times: PassTimes) -> None:
    _check_ascending("widths", times.widths, 1, _MOST_COUNT)
    if not len(times.widths) == len(times.seconds) == len(times.spread):
        raise ProfileError("times: expected seconds and a spread for every width")
    for seconds in times.seconds:
        _within("seconds", seconds, _LEAST_S, _MOST_S)
    for spread in times.spread:
        _within("spread", spread, 0, _MOST_S)


def _check_rounds(one: DrafterRounds) -> None:
    _within("temperature", one.temperature, 0, _MOST_TEMPERATURE)
    _within("draft_length", one.draft_length or 0, 0, _MOST_COUNT)
    _within("rounds", one.rounds, 1, _MOST_TOKENS)
    for name in ("tokens", "rows"):
        _within(name, getattr(one, name), 1, _MOST_COUNT)
    _within("draft_passes", one.draft_passes, 0, _MOST_COUNT)
    _within("overhead_s", one.overhead_s, 0, _MOST_S)
    for drafts in one.drafts:
        _within("nodes", drafts.nodes, 1, _MOST_COUNT)
        for chance in (drafts.share, *drafts.chances):
            _within("chances", chance, 0, 1 + _ROUNDED)


def _check_ascending(name: str, values: Sequence[int], least: int, most: int) -> None:
    if not values or any(a >= b for a, b in pairwise(values)):
        raise ProfileError(f"{name}: expected one or more, ascending")
    for value in (values[0], values[-1]):
        _within(name, value, least, most)


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ProfileError(f"{name}: expected {least:g} to {most:g}")
