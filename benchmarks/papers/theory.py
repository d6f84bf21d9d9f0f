"""Checks the simulator, not hardware, against results of theorems."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from benchmarks.papers.pairs import TimedPair
from benchmarks.papers.reproduction import Claim
from edgedec.simulation.figures import Figure
from edgedec.simulation.synthetic import independent, text

PAPER = "Speculative decoding (2211.17192)"
_ARXIV = "https://arxiv.org/abs/2211.17192"
_TOKENS = 2000
_ACCEPTED, _COST, _LENGTH = "acceptance", "draft pass / target pass", "draft length"


def expected(acceptance: float, cost: float, length: int) -> float:
    """Return the speed-up of theorem 3.8, for passes whose cost is independent of their rows."""
    tokens = (1 - acceptance ** (length + 1)) / (1 - acceptance)
    return tokens / (length * cost + 1)


@cache
def _speed_up(acceptance: float, cost: float, length: int) -> float:
    pair = TimedPair(1.0, cost)
    metrics = pair.sequential(text(independent(acceptance, _TOKENS)), length)
    return metrics.tokens_per_second / pair.plain()


def _simulated(values: Mapping[str, float]) -> float:
    return _speed_up(values[_ACCEPTED], values[_COST], round(values[_LENGTH]))


def _claim(acceptance: float, cost: float, length: int) -> Claim:
    def given(value: float) -> Figure:
        return Figure(
            value, value, "derived", "this reproduction: where the theorem is asked", _ARXIV
        )

    return Claim(
        PAPER,
        f"theorem 3.8: acceptance {acceptance:g}, cost {cost:g}, draft length {length}",
        expected(acceptance, cost, length),
        {
            _ACCEPTED: Figure(
                acceptance - 0.02,
                acceptance + 0.02,
                "derived",
                "this reproduction",
                "",
                f"{_TOKENS} tokens have runs as a rate this uncertain would make them",
            ),
            _COST: given(cost),
            _LENGTH: given(length),
        },
        _simulated,
        "A theorem, not a measurement: the simulator must give it.",
    )


def claims() -> list[Claim]:
    """Return the figures that are compared with the theorem."""
    return [_claim(0.8, 0.05, 5), _claim(0.6, 0.2, 2)]
