"""Judges the results of a certificate's parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HOLDS, NEARLY = "holds", "holds up to near-ties"
BROKEN, OPEN = "DOES NOT HOLD", "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a whole run.

    Attributes:
        holds: every text is plain decoding's up to near-ties, and every control was flagged.
        word: one of ``HOLDS``, ``NEARLY``, ``BROKEN`` and ``OPEN``.
        reasons: why it does not hold or is inconclusive, one line each.
        texts, identical, near_ties, differ: totals of all runtimes, including the matrix.

    """

    holds: bool
    word: str
    reasons: list[str]
    texts: int
    identical: int
    near_ties: int
    differ: int


def judge(
    runtimes: Mapping[str, Mapping[str, Any]], distribution: Sequence[Mapping[str, Any]]
) -> Judgement:
    """Judge the comparisons by runtime, their controls, and the rows of the enumerable model."""
    wrong = [*_wrong_texts(runtimes), *_wrong_distributions(distribution)]
    open_ = [*_shows_nothing(runtimes), *_unnoticed(distribution)]
    parts = [one[name] for one in runtimes.values() for name in ("texts", "matrix")]
    texts, identical, near = (
        sum(part[name] for part in parts) for name in ("texts", "identical", "near_ties")
    )
    word = BROKEN if wrong else OPEN if open_ else NEARLY if near else HOLDS
    holds = not wrong and not open_
    differ = sum(_unexplained(part) for part in parts)
    return Judgement(holds, word, [*wrong, *open_], texts, identical, near, differ)


def _unexplained(part: Mapping[str, Any]) -> int:
    return sum(not one["near_tie"] for one in part["divergences"])


def _wrong_texts(runtimes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for subject, found in runtimes.items():
        for part in ("texts", "matrix"):
            worst = [one for one in found[part]["divergences"] if not one["near_tie"]]
            if worst:
                first = worst[0]
                where = ", ".join(filter(None, (first["way"], first["case"])))
                yield (
                    f"{subject}: {len(worst)} of {found[part]['texts']} texts differ by more than a"
                    f" near-tie, the first with {where}"
                )


def _wrong_distributions(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["flagged"] and not row["as_expected"]:
            yield (
                f"distribution: texts of {row['setting']} are not distributed as the target's"
                f" (p = {row['p_value']:.2g})"
            )


def _shows_nothing(runtimes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for subject, found in runtimes.items():
        for part in ("texts", "matrix"):
            if not found[part]["drafted_tokens"]:
                yield f"{subject}: nothing was drafted, so nothing was compared"
        if not found["control"]["flagged"]:
            yield f"{subject}: {found['control']['control']} went unnoticed"


def _unnoticed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if not row["flagged"] and not row["as_expected"]:
            yield f"distribution: the broken rule {row['setting']} went unnoticed"
