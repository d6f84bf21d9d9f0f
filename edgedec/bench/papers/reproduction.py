"""A published figure, held against what a simulation gives over all that its inputs may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from edgedec.errors import InputError
from edgedec.simulation.figures import Figure

# A range wider than this either way of its middle would contain anything.
WIDEST = 0.2
# Of the bisection for what an input would have to be: a hundredth of its range.
_STEPS = 7

Model = Callable[[Mapping[str, float]], float]


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure of a paper.

    Attributes:
        paper: name and number.
        figure: what it is of, with its unit.
        published: the figure.
        inputs: of the simulation, by name, each with its source. Never the paper's results.
        model: the simulation: the figure from one value of each input.
        remark: why it fits or does not, in whole sentences.
        rounding: by how much the figure may be off as printed, where that is not nothing.

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
    """What came of a claim.

    Attributes:
        paper, figure, published, remark, rounding: the claim's.
        inputs: name, low, high, kind and source of each.
        corners: points that were simulated: all ends of all ranges.
        low, high: of what they gave.
        blame: by input, the spread that it gives alone, all others at their middles.
        implied: what the input that spreads most would have to be for the published figure, all
            others at their middles; None where nothing within its range would do.

    """

    paper: str
    figure: str
    published: float
    remark: str
    inputs: tuple[tuple[str, Figure], ...]
    corners: int
    low: float
    high: float
    blame: Mapping[str, float]
    implied: float | None = None
    rounding: float = 0.0

    @property
    def widest(self) -> str | None:
        """The input that spreads most; None where none is a range."""
        return max(self.blame, key=lambda name: self.blame[name]) if self.blame else None

    @property
    def middle(self) -> float:
        """Return the middle of the produced range."""
        return (self.low + self.high) / 2

    @property
    def spread(self) -> float:
        """Half the produced range, as a share of its middle."""
        return _spread(self.low, self.high)

    @property
    def inside(self) -> bool:
        """True if the published figure lies in the produced range."""
        return self.low - self.rounding <= self.published <= self.high + self.rounding

    @property
    def narrow(self) -> bool:
        """True if the produced range is narrow enough to say something."""
        return self.spread <= WIDEST

    @property
    def passed(self) -> bool:
        """Whether the figure is reproduced: inside, and narrow."""
        return self.inside and self.narrow

    @property
    def verdict(self) -> str:
        """In words."""
        if self.passed:
            return "reproduced"
        if self.inside:
            return "inside, but too wide to count"
        return "does not fit"

    def to_json(self) -> dict[str, Any]:
        """As a raw record holds it."""
        return {
            "paper": self.paper,
            "figure": self.figure,
            "published": self.published,
            "rounding": self.rounding,
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
            "remark": self.remark,
            "inputs": [
                {
                    "name": name,
                    "range": [figure.low, figure.high],
                    "kind": figure.kind,
                    "source": figure.source,
                    "url": figure.url,
                    "note": figure.note,
                }
                for name, figure in self.inputs
            ],
        }


def evaluate(claim: Claim) -> ClaimRow:
    """Simulate every corner of the inputs' ranges.

    Raises:
        InputError: an input names no source, or how it was estimated.

    """
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
        paper=claim.paper,
        figure=claim.figure,
        published=claim.published,
        remark=claim.remark,
        inputs=tuple(claim.inputs.items()),
        corners=len(given),
        low=min(given),
        high=max(given),
        blame=blame,
        implied=_implied(claim, max(blame, key=lambda name: blame[name])) if blame else None,
        rounding=claim.rounding,
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
