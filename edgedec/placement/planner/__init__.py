"""Decides from a profile: every plan there could be, what it takes, what it gives; pure.

``options`` lists families of plans, ``analytic`` estimates them from ``survival`` and measured
seconds, ``sizes`` finds tree sizes, ``footprint`` and ``retreat`` fit them into memory, and
``deciding`` chooses and says why (``reasons``).
"""

from edgedec.placement.planner.deciding import Predict, choose, decide

__all__ = ["Predict", "choose", "decide"]
