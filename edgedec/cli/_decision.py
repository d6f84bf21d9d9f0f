"""Prints a decision as a table with its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgedec._support.amounts import speed
from edgedec.cli import _terminal
from edgedec.cli._terminal import say

if TYPE_CHECKING:
    from edgedec.records.plan import Candidate, Decision

_SHOWN = 12
_FORMULA = "~"
_HEADS = ("plan", "tokens/s", "vs plain", "first token", "memory")


def show(decision: Decision, *, show_all: bool) -> None:
    """Print the plans that were considered, the choice, and the reasons.

    Only replayed plans are shown, to which the reasons refer; with ``show_all`` also those
    estimated by formula, marked.
    """
    usable = [one for one in decision.candidates if not one.refused]
    refused = [one for one in decision.candidates if one.refused]
    plain = max((one.prediction.tokens_per_second for one in usable if one.plan.plain), default=0.0)
    shown = usable if show_all else _worth_showing(usable, decision.chosen)
    rough = any(not one.replayed for one in shown)
    _terminal.columns([_HEADS, *(_row(one, plain, one == decision.chosen) for one in shown)])
    if rough:
        say(f"{_FORMULA} estimated by formula: too slow to be worth a replay")
    by_reason: dict[str, list[str]] = {}
    for one in refused:
        by_reason.setdefault(one.refused, []).append(one.plan.label)
    for reason, labels in by_reason.items():
        named = labels if show_all else labels[:1]
        others = f" and {len(labels) - len(named)} more" if len(named) < len(labels) else ""
        say(f"refused: {', '.join(named)}{others}: {reason}")
    if len(shown) < len(usable):
        say(f"{len(usable) - len(shown)} more with --all")
    click.echo()
    for reason in decision.reasons:
        say(reason)
    if decision.fallbacks:
        say(f"If that fails: {'; then '.join(one.label for one in decision.fallbacks)}.")


def _worth_showing(usable: list[Candidate], chosen: Candidate) -> list[Candidate]:
    """Return the best few replayed plans, the chosen one, and plain decoding at every place."""
    replayed = [one for one in usable if one.replayed] or usable
    return [
        one
        for place, one in enumerate(replayed)
        if place < _SHOWN or one == chosen or one.plan.plain
    ]


def _row(one: Candidate, plain: float, chosen: bool) -> tuple[str, ...]:
    from edgedec.cli._output import size

    found = one.prediction
    rough = "" if one.replayed else _FORMULA
    return (
        ("* " if chosen else "  ") + one.plan.label,
        rough + speed(found.tokens_per_second),
        f"{found.tokens_per_second / plain:.2f}" if plain and one.replayed else "",
        rough + f"{found.ttft_s * 1000:.0f} ms",
        size(found.peak_bytes),
    )
