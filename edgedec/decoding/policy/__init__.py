"""Draft policies, which decide how much to draft; ``measured`` is the default.

A policy is asked for limits once a round and for permission before each drafted token, and gets
the round's figures afterwards. Its choices may depend on time; the text never does.

``base`` has the protocol and the simple policies. ``MeasuredCost`` combines these parts, and
docs/how-it-decides.md gives their formulae:

- ``cost``: seconds of a pass by its rows and the tokens that a second is worth; of prefilling what
  a draft model lacks; and what the drafts of one text may lose, however wrong the estimates are.
- ``drafter_estimate``: for one drafter, the chance that a token of some confidence is accepted,
  what a peek takes, and from these the chance at which a token is worth its row.
"""

from edgedec.decoding.policy.base import (
    DraftPolicy,
    Fixed,
    Learning,
    Only,
    RoundRecord,
    for_request,
)
from edgedec.decoding.policy.cost import CostCurve, calibrate
from edgedec.decoding.policy.measured import MeasuredCost

__all__ = [
    "CostCurve",
    "DraftPolicy",
    "Fixed",
    "Learning",
    "MeasuredCost",
    "Only",
    "RoundRecord",
    "calibrate",
    "for_request",
]
