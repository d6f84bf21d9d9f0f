"""Draft policies, which decide how much to draft; ``measured`` is the default.

A policy is asked for limits once a round and for permission before each drafted token, and gets
the round's figures afterwards. Its choices may depend on time; the text never does.

``MeasuredCost`` combines these parts, and docs/how-it-decides.md gives their formulae:

- ``cost``: seconds of a pass by its rows, measured by ``calibrate`` and corrected by ``LiveCost``.
- ``round_cost``: ``RoundCost`` adds the work around the passes, and the tokens that a second is
  worth; ``CatchUpCost`` says whether a draft model should prefill what it lags behind.
- ``drafter_estimate``: for one drafter, the chance that a token of some confidence is accepted, and
  what a peek takes. From these and the costs, ``thresholds`` computes when to peek at the next
  token and when to draw it.
- ``stake``: bounds what the drafts of one text may lose, however wrong the estimates are.
- ``evidence``: what the drafters did in this round, which teaches their estimates when it is over.
- ``expected``: the speed to expect of these before anything is decoded, to choose kernels by.
- ``query_backoff``: pauses while nothing is drafted.

``base`` is the protocol, ``fixed`` a fixed draft length, ``override`` the options of one request.
"""

from edgedec.decoding.policy.base import DraftPolicy, Learning, RoundRecord
from edgedec.decoding.policy.cost import CostCurve, calibrate
from edgedec.decoding.policy.fixed import Fixed
from edgedec.decoding.policy.measured import MeasuredCost
from edgedec.decoding.policy.override import Only, for_request

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
