"""Draft policies, which decide how much to draft, one file each; ``measured`` is the default.

A policy is asked for limits once a round and for permission before each drafted token, and gets
feedback afterwards. Its choices may depend on time; the text never does.
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
