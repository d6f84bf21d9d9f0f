"""Turns a recorded generation into accepted, rejected and target texts by round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Line ends and tabs of rejected tokens are shown as symbols, so that the text keeps its layout.
_SIGNS = {"\n": "\N{RETURN SYMBOL}", "\t": "\N{RIGHTWARDS ARROW TO BAR}", "\r": ""}
# Characters of a prompt that are shown, its end.
_LONGEST = 1200


def shown(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt, and the rounds with their tokens; all as plain text, to be escaped."""
    rounds = []
    counts = dict.fromkeys(("accepted", "own", "rejected"), 0)
    for number, one in enumerate(generation["sides"]["auto"]["rounds"], 1):
        rejected = ["".join(_SIGNS.get(c, c) for c in text) for text in one["rejected"]]
        counts["accepted"] += len(one["accepted"])
        counts["rejected"] += len(rejected)
        counts["own"] += one["emitted"] - len(one["accepted"])
        rounds.append(
            {
                "accepted": one["accepted"],
                "rejected": rejected,
                "own": one["own"],
                "about": _about(number, one),
            }
        )
    prompt = generation["text"]
    if len(prompt) > _LONGEST:
        prompt = f"\N{HORIZONTAL ELLIPSIS}{prompt[-_LONGEST:]}"
    return {"name": generation["prompt"], "prompt": prompt, "rounds": rounds, **counts}


def _about(number: int, one: Mapping[str, Any]) -> str:
    """Describe a round in a line."""
    drafted = len(one["accepted"]) + len(one["rejected"])
    if not drafted:
        return f"round {number}: nothing drafted, at {1000 * one['seconds']:.0f} ms"
    return (
        f"round {number}: {len(one['accepted'])} of {drafted} drafted tokens accepted"
        f" ({one['source']}), at {1000 * one['seconds']:.0f} ms"
    )
