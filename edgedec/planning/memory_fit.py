"""Fits a family of plans into memory by reducing what they need in a fixed order.

Drafted tokens are reduced first, as long as 96% of the best speed is kept (SpecMemo, 2506.01206);
then the context, unless the user set one, down to what the workload needs (with a head it stays
that of plain decoding, since longer texts do without the head); then drafted tokens again; then the
family is refused.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgedec._support.amounts import size
from edgedec.decoding import drafting
from edgedec.decoding.drafting import DRAFT_CONTEXT
from edgedec.memory.account import AUTO_LENGTH, Account, ModelCosts, Shape, account
from edgedec.memory.grant import with_spare
from edgedec.records.plan import Plan
from edgedec.records.profile import Measured, Profile
from edgedec.records.workload import LEAST_CONTEXT, Workload

_ENOUGH = 0.96


# -- memory of a plan ---------------------------------------------------------------------------
#
# A model's memory is the measured growth of its process without the cache that was filled, or the
# size of the stored weights if nothing was measured.

# Measured: a process that plans (and measures) before it decodes takes 21 MB more than one that
# only decodes, since used pages are rarely given back.
_PLANNING_BYTES = 24_000_000
# Measured: a byte-pair tokenizer with 100,000 entries takes 44 MB.
_TOKEN_BYTES = 440


def drafted_at_most(plan: Plan) -> int:
    """Return the most tokens that a round drafts."""
    return AUTO_LENGTH if plan.draft_length is None else plan.draft_length


def footprint(profile: Profile, plan: Plan, context: int) -> Account:
    """Return the memory of a plan with a context of ``context`` tokens.

    Raises:
        ProfileError: the plan uses a place that was not measured.

    """
    target = profile.at("target", plan.target)
    draft = beside = None
    if plan.draft is not None:
        beside = profile.at("draft", plan.draft)
        # One model is loaded once for both roles.
        shared = target.name == beside.name and target.place == beside.place
        draft = _of_draft(beside, 0 if shared else _held(beside))
    elif drafting.info(plan.drafter).needs_head:
        beside = profile.head_beside(plan.target)
        draft = None if beside is None else _costs(beside, _held(beside))
    return account(
        _costs(target, _held(target)),
        draft,
        Shape(context, drafted_at_most(plan), (plan.drafter,)),
        process=_process(target, beside),
        tokenizer=_TOKEN_BYTES * target.vocab_size,
    )


def _costs(measured: Measured, held: int) -> ModelCosts:
    return ModelCosts(
        held,
        0 if measured.place.elsewhere else measured.kv_bytes_per_token,
        measured.max_context,
        measured.vocab_size,
        measured.scratch_bytes_per_token,
        rows=max((max(times.widths) for times in measured.times), default=0),
        lookup_bytes=0 if measured.place.elsewhere else measured.lookup_bytes,
    )


def _of_draft(measured: Measured, held: int) -> ModelCosts:
    costs = _costs(measured, held)
    return replace(costs, max_context=min(costs.max_context, DRAFT_CONTEXT))


def _process(target: Measured, draft: Measured | None) -> int:
    if draft is None:
        return target.process_bytes + _PLANNING_BYTES
    both = target.process_bytes, draft.process_bytes
    # Both contain the interpreter, whose share was not measured, so it counts twice.
    one = max(both) if target.place.format == draft.place.format else sum(both)
    return one + _PLANNING_BYTES


def _held(measured: Measured) -> int:
    if measured.place.elsewhere:
        return measured.rss_bytes
    filled = max((times.context for times in measured.times), default=0)
    without_cache = measured.rss_bytes - filled * measured.kv_bytes_per_token
    # Pages of a mapped file may have been dropped, but the weights are needed.
    held = measured.place.weight_memory
    return max(without_cache, measured.weight_bytes if held is None else held)


# -- fitting ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fit:
    """A plan of the family that fits, and its context.

    Attributes:
        context: its context length in tokens.
        peak_bytes: memory with a full context.
        refused: why no plan fits; empty if one does.

    """

    plan: Plan
    context: int
    peak_bytes: int
    refused: str = ""


class MemoryFit:
    """Fits plans into a number of bytes.

    Args:
        given: limit in bytes; None sets none.
        available: the limit if none is given.

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
        """Return the memory of a plan with a full context, in bytes."""
        return footprint(self._profile, plan, context).total

    def least(self, plan: Plan) -> int:
        """Return the memory of a plan with the smallest usable context, in bytes."""
        return with_spare(self.bytes_of(plan, self._needed))

    @property
    def amount(self) -> str:
        """The limit in words, such as ``2.00 GB are given``; empty if there is none."""
        if self.limit is None:
            return ""
        return f"{size(self.limit)} are {'given' if self._given else 'all there is'}"

    @property
    def whence(self) -> str:
        """Source of the limit: ``given`` by the user, or ``in total`` on the machine."""
        return "given" if self._given else "in total"

    @property
    def needed(self) -> int:
        """Smallest context that fits the workload, in tokens."""
        return self._needed

    def holds(self, plan: Plan, context: int) -> bool:
        """Return whether a plan with this context fits with the spare memory that opening keeps."""
        return self.limit is None or with_spare(self.bytes_of(plan, context)) <= self.limit

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
                held = context = self._largest_context(plan, full)
                if drafting.info(plan.drafter).needs_head:  # longer texts do without it
                    context = self._largest_context(Plan(plan.target), full)
                return Fit(plan, context, self.bytes_of(plan, held))
        least = min(self.least(plan) for plan in rates)
        return self._refused(
            by_rate[-1] if len(by_rate) == 1 else next(iter(rates)),
            f"over the memory: it needs {size(least)} with a context of {self._needed} tokens,"
            f" and {self.amount}",
        )

    def _refused(self, plan: Plan, why: str) -> Fit:
        return Fit(plan, self._needed, self.least(plan), why)

    def _largest_context(self, plan: Plan, full: int) -> int:
        longer = range(self._needed + 1, full + 1)
        fitting = bisect_left(longer, True, key=lambda context: not self.holds(plan, context))
        return self._needed + fitting
