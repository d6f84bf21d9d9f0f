"""The result of a verification."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgedec.loading.build import OpenOptions
from edgedec.verify.outcomes import FirstDifference

# The numbers of a row.
COUNTS = ("texts", "identical", "near_ties", "differ", "drafted_tokens", "accepted_tokens")


@dataclass(frozen=True, slots=True)
class Way:
    """A configuration to compare with plain decoding.

    Attributes:
        name: for tables.
        options: options that open the pipeline.
        cases: names of the cases it runs; None is all.
        texts: the texts it runs, as case and index of the prompt; None is all of these cases.

    """

    name: str
    options: OpenOptions
    cases: frozenset[str] | None = None
    texts: frozenset[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class VerificationRow:
    """The result of one case in one configuration.

    Attributes:
        way, case: their names.
        texts: pairs compared.
        identical: pairs with equal tokens, text and finish reason, and log-probabilities that
            differ by no more than rounding.
        near_ties: pairs whose first divergence is a near-tie.
        differ: pairs that differ by more.
        drafted_tokens, accepted_tokens: of the speculative side.

    """

    way: str
    case: str
    texts: int
    identical: int
    near_ties: int
    differ: int
    drafted_tokens: int
    accepted_tokens: int

    def plus(self, other: VerificationRow) -> VerificationRow:
        """Return the sum of two rows of one configuration and case."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return dataclasses.replace(self, **sums)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification.

    Attributes:
        rows: one for each configuration and case.
        tokens: number of tokens of the plain texts.
        plan: plan of the speculative side; of the first configuration if there are several.
        divergences: one for each pair that differs.
        notes: what was left out or had no effect, one line each.

    """

    rows: list[VerificationRow]
    tokens: int
    plan: dict[str, Any]
    divergences: list[FirstDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def total(self, name: str) -> int:
        """Return the sum of one of the rows' numbers."""
        return sum(getattr(row, name) for row in self.rows)

    @property
    def near_ties(self) -> int:
        """Number of divergences explained by arithmetic."""
        return self.total("near_ties")

    @property
    def holds(self) -> bool:
        """True if every text is identical up to a near-tie, and something was drafted."""
        unexplained = [one for one in self.divergences if not one.near_tie]
        return not unexplained and self.total("drafted_tokens") > 0

    @classmethod
    def merged(cls, found: Sequence[Verification]) -> Verification:
        """Return one verification of several that ran on different prompts."""
        rows: dict[tuple[str, str], VerificationRow] = {}
        for row in (row for one in found for row in one.rows):
            before = rows.get((row.way, row.case))
            rows[row.way, row.case] = row if before is None else before.plus(row)
        return cls(
            rows=list(rows.values()),
            tokens=sum(one.tokens for one in found),
            plan=next((one.plan for one in found if one.plan), {}),
            divergences=[each for one in found for each in one.divergences],
            notes=list(dict.fromkeys(note for one in found for note in one.notes)),
        )

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Verification:
        """Return the verification that ``to_json`` wrote."""
        rows = [VerificationRow(**row) for row in raw["rows"]]
        divergences = [FirstDifference(**one) for one in raw["divergences"]]
        return cls(rows, raw["tokens"], raw["plan"], divergences, list(raw["notes"]))

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        totals = {name: self.total(name) for name in COUNTS}
        return {"holds": self.holds, **totals, **dataclasses.asdict(self)}
