"""Fits a family of plans into memory by giving things up in a fixed order.

First drafted tokens, as long as 96% of the best speed is kept (SpecMemo, 2506.01206); then context,
unless the user asked for one, down to what the workload needs; then more drafted tokens; then the
family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgedec._support.amounts import size
from edgedec.planning.footprint import footprint
from edgedec.records.plan import Plan
from edgedec.records.profile import Profile
from edgedec.records.workload import LEAST_CONTEXT, Workload

_ENOUGH = 0.96


@dataclass(frozen=True, slots=True)
class Fit:
    """A plan of the family that fits, and its context.

    Attributes:
        plan: the one to use.
        context: most tokens of a text.
        peak_bytes: memory with a full context.
        refused: why none fits, else empty.

    """

    plan: Plan
    context: int
    peak_bytes: int
    refused: str = ""


class MemoryFit:
    """Fits plans into a number of bytes.

    Args:
        profile: what was measured.
        workload: what is to be decoded.
        given: bytes; None sets no limit.
        available: bytes that limit plans if none are given.

    """

    def __init__(
        self,
        profile: Profile,
        workload: Workload,
        given: int | None,
        available: int | None = None,
    ) -> None:
        self._profile = profile
        self.limit = available if given is None else given
        self._given = given is not None
        self._asked = workload.max_context
        self._needed = max(workload.max_context or workload.tokens, LEAST_CONTEXT)

    def bytes_of(self, plan: Plan, context: int) -> int:
        """Bytes that a plan takes with a full context."""
        return footprint(self._profile, plan, context).total

    def least(self, plan: Plan) -> int:
        """Bytes that it takes with the smallest context that serves the workload."""
        return self.bytes_of(plan, self._needed)

    @property
    def amount(self) -> str:
        """The limit on plans, as ``2.00 GB are given``; empty if there is none."""
        if self.limit is None:
            return ""
        return f"{size(self.limit)} are {'given' if self._given else 'all there is'}"

    @property
    def whence(self) -> str:
        """Source of the limit: ``given`` by the user, or ``in total`` on the machine."""
        return "given" if self._given else "in total"

    @property
    def needed(self) -> int:
        """Tokens that the context must hold."""
        return self._needed

    def holds(self, plan: Plan, context: int) -> bool:
        """Return whether a plan with this context fits."""
        return self.limit is None or self.bytes_of(plan, context) <= self.limit

    def fit(self, rates: Mapping[Plan, float]) -> Fit:
        """Return the plan of a family to use, and its context.

        Args:
            rates: the family's plans by ascending length, with their tokens per second.

        """
        by_rate = sorted(rates, key=lambda plan: rates[plan], reverse=True)
        limit = self._profile.at("target", by_rate[0].target).max_context
        full = self._asked or limit
        if self._needed > limit:
            return self._refused(
                by_rate[0], f"a context of {self._needed} tokens: it was trained for {limit}"
            )
        enough = [plan for plan in rates if rates[plan] >= _ENOUGH * rates[by_rate[0]]]
        for plan in by_rate:
            if self.holds(plan, full) and plan in enough:
                return Fit(plan, full, self.bytes_of(plan, full))
        for plan in (enough[0], *by_rate):
            if self.holds(plan, self._needed):
                context = self._largest_context(plan, full)
                return Fit(plan, context, self.bytes_of(plan, context))
        least = min(self.least(plan) for plan in rates)
        return self._refused(
            by_rate[-1] if len(by_rate) == 1 else next(iter(rates)),
            f"over the memory: it needs {size(least)} with a context of {self._needed} tokens,"
            f" and {self.amount}",
        )

    def _refused(self, plan: Plan, why: str) -> Fit:
        return Fit(plan, self._needed, self.least(plan), why)

    def _largest_context(self, plan: Plan, full: int) -> int:
        low, high = self._needed, full
        while low < high:
            middle = (low + high + 1) // 2
            if self.holds(plan, middle):
                low = middle
            else:
                high = middle - 1
        return low
