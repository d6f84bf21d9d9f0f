"""Prints a decision as a table with its reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgedec._support.amounts import speed
from edgedec.cli import _terminal
from edgedec.cli._output import size
from edgedec.cli._terminal import print_text

if TYPE_CHECKING:
    from edgedec.records.plan import Candidate, Decision

_SHOWN = 12
_FORMULA = "~"
_HEADS = ("plan", "tokens/s", "vs plain", "each text", "first token", "memory")
_TEXTS = 3


def answer(decision: Decision) -> None:
    """Print the plan and its speed, in one line."""
    chosen = decision.chosen
    plain = _plain([one for one in decision.candidates if not one.refused])
    rate = f"{speed(chosen.tokens_per_second)} tokens/s"
    if chosen.plan.plain:
        print_text(f"Plan: {chosen.plan.label}, {rate}.")
    else:
        gain = chosen.measured.speedup if chosen.measured else chosen.tokens_per_second / plain
        print_text(f"Plan: {chosen.plan.label}, {rate}, {gain:.2f} times plain decoding.")


def explain(decision: Decision) -> None:
    """Print the reasons."""
    for reason in decision.reasons:
        print_text(reason)


def _plain(usable: list[Candidate]) -> float:
    """Return the tokens per second of plain decoding, of a plan that ran if any did."""
    ran = [one for one in usable if one.measured]
    return max((one.tokens_per_second for one in ran or usable if one.plan.plain), default=0.0)


def show(decision: Decision, *, show_all: bool) -> None:
    """Print the plans that were considered, the choice, and the reasons.

    Only plans that ran are shown, if any did; with ``show_all`` also those estimated by formula,
    marked.
    """
    usable = [one for one in decision.candidates if not one.refused]
    refused = [one for one in decision.candidates if one.refused]
    ran = [one for one in usable if one.measured]
    plain = _plain(usable)
    shown = usable if show_all else ran or _worth_showing(usable, decision.chosen)
    rough = bool(ran) and any(not one.measured for one in shown)
    rows = [_HEADS, *(_row(one, plain, rough, one == decision.chosen) for one in shown)]
    _terminal.columns(rows if ran else [row[:_TEXTS] + row[_TEXTS + 1 :] for row in rows])
    if rough:
        why = "too slow, or nearly the same as a plan that ran"
        print_text(f"{_FORMULA} estimated by formula and not run: {why}")
    by_reason: dict[str, list[str]] = {}
    for one in refused:
        by_reason.setdefault(one.refused, []).append(one.plan.label)
    for reason, labels in by_reason.items():
        named = labels if show_all else labels[:1]
        others = f" and {len(labels) - len(named)} more" if len(named) < len(labels) else ""
        print_text(f"refused: {', '.join(named)}{others}: {reason}")
    if len(shown) < len(usable):
        print_text(f"{len(usable) - len(shown)} more with --all")
    click.echo()
    explain(decision)
    if decision.fallbacks:
        print_text(f"If that fails: {'; then '.join(one.label for one in decision.fallbacks)}.")


def _worth_showing(usable: list[Candidate], chosen: Candidate) -> list[Candidate]:
    """Return the best few plans, the chosen one, and plain decoding at every place."""
    return [
        one for index, one in enumerate(usable) if index < _SHOWN or one == chosen or one.plan.plain
    ]


def _row(one: Candidate, plain: float, rough: bool, chosen: bool) -> tuple[str, ...]:
    trial, mark = one.measured, "" if one.measured or not rough else _FORMULA
    return (
        ("* " if chosen else "  ") + one.plan.label,
        mark + speed(one.tokens_per_second),
        f"{one.tokens_per_second / plain:.2f}" if plain and not mark else "",
        f"{min(trial.texts):.2f}-{max(trial.texts):.2f}" if trial else "",
        f"{one.prediction.ttft_s * 1000:.0f} ms",
        size(one.prediction.peak_bytes),
    )
