"""The result of a verification."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from edgedec.pipeline import GenerateOptions
from edgedec.verify.outcomes import FirstDifference

# The case that near-ties are measured on.
GREEDY = "greedy"
# The numbers of a row.
COUNTS = ("texts", "identical", "near_ties", "differ", "drafted_tokens", "accepted_tokens")


@dataclass(frozen=True, slots=True)
class Case:
    """Options of one text per prompt.

    Attributes:
        name: for tables.
        options: one for each prompt.
        ends: the finish reason that plain decoding must give for each prompt; None is any.
        base: the case that this one's texts should differ from, if its option has an effect.

    """

    name: str
    options: tuple[GenerateOptions, ...]
    ends: tuple[str | None, ...] = ()
    base: str | None = None


def alike(name: str, options: GenerateOptions, count: int, base: str | None = None) -> Case:
    """Return a case with the same options for every prompt."""
    return Case(name, (options,) * count, base=base)


@dataclass(frozen=True, slots=True)
class VerificationRow:
    """The result of one case in one configuration.

    Attributes:
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

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        totals = {name: self.total(name) for name in COUNTS}
        return {"holds": self.holds, **totals, **dataclasses.asdict(self)}
