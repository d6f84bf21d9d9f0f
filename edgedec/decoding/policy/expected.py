"""Predicts the speed of a target with a draft model before the two have decoded anything."""

from __future__ import annotations

from edgedec.decoding.policy.cost import CostCurve
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate

# Halvings of the interval in which the speed lies: to a thousandth of plain decoding's speed.
_HALVINGS = 15


def expected_rate(target: CostCurve, draft_s: float, most: int = 16) -> float:
    """Return the tokens per second that ``MeasuredCost`` expects with a draft model.

    The draft model is taken to be as good as a new one claims to be. Each round drafts where that
    pays by these costs. The speed is the price of a second at which a round is worth its time.

    Args:
        target: seconds of a target pass by its rows.
        draft_s: seconds of a draft model's pass over one row.
        most: most drafted tokens of a round.

    """
    drafter = DrafterEstimate(most, draft_s, branching=False)
    drafter.learn_from(drafter.learned())  # as if earlier texts had borne it out
    seconds = [target.at(rows) for rows in range(1, most + 2)]
    low, high = 1 / seconds[0], (most + 1) / min(seconds)
    for _ in range(_HALVINGS):
        price = (low + high) / 2
        drafter.plan(price, seconds, 0.0)
        # Expected tokens of a round, less those that its time yields at this price.
        if 1 + max(drafter.gain, 0.0) > price * seconds[0]:
            low = price
        else:
            high = price
    return low
