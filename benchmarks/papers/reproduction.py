"""Compares a published figure with the simulation's range over all plausible inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from edgedec.errors import InputError
from edgedec.simulation.figures import Figure

# A range wider than this either way of its middle would contain anything.
WIDEST = 0.2
# Resolution of the bisection for an implied input: a hundredth of its range.
_STEPS = 7

Model = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of a paper.

    Attributes:
        paper: name and number.
        figure: what it measures, with its unit.
        published: the figure.
        inputs: of the simulation, by name, each with its source. Never the paper's results.
        model: the simulation: the figure from one value of each input.
        remark: why it fits or does not, in whole sentences.
        rounding: rounding error of the printed figure, if any.

    """

    paper: str
    figure: str
    published: float
    inputs: Mapping[str, Figure]
    model: Model
    remark: str
    rounding: float = 0.0


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """The result of a claim.

    Attributes:
        claim: the claim.
        corners: simulated points: all ends of all ranges.
        low, high: range of the results.
        blame: by input, the spread that it causes alone, with all others at their middles.
        implied: value of the input with the largest spread that gives the published figure, with
            all others at their middles; None if no value in its range does.

    """

    claim: Claim
    corners: int
    low: float
    high: float
    blame: Mapping[str, float]
    implied: float | None = None

    @property
    def widest(self) -> str | None:
        """Input with the largest spread; None if none is a range."""
        return max(self.blame, key=lambda name: self.blame[name]) if self.blame else None

    @property
    def middle(self) -> float:
        """Return the middle of the produced range."""
        return (self.low + self.high) / 2

    @property
    def spread(self) -> float:
        """Half the range of results, relative to its middle."""
        return _spread(self.low, self.high)

    @property
    def inside(self) -> bool:
        """True if the published figure lies in the range of results."""
        rounding = self.claim.rounding
        return self.low - rounding <= self.claim.published <= self.high + rounding

    @property
    def narrow(self) -> bool:
        """True if the range of results is narrow enough to be informative."""
        return self.spread <= WIDEST

    @property
    def passed(self) -> bool:
        """True if the figure is reproduced: inside a narrow range."""
        return self.inside and self.narrow

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.passed:
            return "reproduced"
        if self.inside:
            return "inside, but too wide to count"
        return "does not fit"

    def to_json(self) -> dict[str, Any]:
        """Return the raw record."""
        return {
            "paper": self.claim.paper,
            "figure": self.claim.figure,
            "published": self.claim.published,
            "rounding": self.claim.rounding,
            "low": self.low,
            "high": self.high,
            "spread": self.spread,
            "inside": self.inside,
            "narrow": self.narrow,
            "passed": self.passed,
            "verdict": self.verdict,
            "corners": self.corners,
            "blame": dict(self.blame),
            "implied": self.implied,
            "remark": self.claim.remark,
            "inputs": [
                {
                    "name": name,
                    "range": [figure.low, figure.high],
                    "kind": figure.kind,
                    "source": figure.source,
                    "url": figure.url,
                    "note": figure.note,
                }
                for name, figure in self.claim.inputs.items()
            ],
        }


def evaluate(claim: Claim) -> ClaimRow:
    """Simulate every corner of the inputs' ranges, each of which has to have a source."""
    for name, figure in claim.inputs.items():
        if not figure.source or not (figure.url or figure.note):
            raise InputError(f"{claim.paper}, input {name}: expected its source")
    names = list(claim.inputs)
    given = [
        claim.model(dict(zip(names, values, strict=True)))
        for values in product(*(figure.ends for figure in claim.inputs.values()))
    ]
    blame = _blame(claim)
    return ClaimRow(
        claim,
        corners=len(given),
        low=min(given),
        high=max(given),
        blame=blame,
        implied=_implied(claim, max(blame, key=lambda name: blame[name])) if blame else None,
    )


def _blame(claim: Claim) -> dict[str, float]:
    middles = {name: figure.middle for name, figure in claim.inputs.items()}
    found = {}
    for name, figure in claim.inputs.items():
        if len(figure.ends) > 1:
            ends = [claim.model({**middles, name: value}) for value in figure.ends]
            found[name] = _spread(min(ends), max(ends))
    return found


def _implied(claim: Claim, name: str) -> float | None:
    middles = {other: figure.middle for other, figure in claim.inputs.items()}

    def off(value: float) -> float:
        return claim.model({**middles, name: value}) - claim.published

    low, high = claim.inputs[name].low, claim.inputs[name].high
    rising = off(high) > off(low)
    if off(low) * off(high) > 0:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if (off(middle) < 0) == rising:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _spread(low: float, high: float) -> float:
    return (high - low) / (high + low)
