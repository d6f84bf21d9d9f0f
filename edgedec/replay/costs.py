"""Seconds of a model's passes, looked up often: a ``Measured`` with its lines drawn once."""

from __future__ import annotations

from edgedec.decoding.policy.cost import WIDTHS, CostCurve
from edgedec.errors import InputError
from edgedec.records.profile import Measured

# Rows that a policy's curve is given at: those that `calibrate` would measure.
_WIDTHS = tuple(sorted(WIDTHS))


class PassCost:
    """Times of the passes of one model at one place.

    Traces are of short prompts, workloads need not be: passes take what they would with a
    longer prompt, and so does reading it.

    Args:
        measured: of the model.
        prompt: tokens of the trace's prompt.
        stands_for: tokens of the prompt that it stands for; None is as many.
        logits: whether whole rows come back, as sampling needs them, not the best tokens alone.

    """

    def __init__(
        self,
        measured: Measured,
        prompt: int = 1,
        stands_for: int | None = None,
        *,
        logits: bool = False,
    ) -> None:
        if not measured.times:
            raise InputError(f"{measured.name} at {measured.place.label}: no pass was timed")
        self.measured = measured
        stands_for = prompt if stands_for is None else stands_for
        self._row_s = measured.transfer_s if logits else 0.0
        self._more = stands_for - prompt
        self._longer = stands_for / prompt
        self._known: dict[tuple[int, int], float] = {}
        self._lines = [(times.context, times.curve) for times in measured.times]

    def reading(self, tokens: int, of_prompt: bool) -> float:
        """Seconds of reading some tokens without wanting their rows."""
        return tokens * self.measured.prefill_s * (self._longer if of_prompt else 1.0)

    def seconds(self, rows: int, context: int) -> float:
        """Return the seconds of a pass with so many tokens of the trace in the cache."""
        key = (rows, context)
        known = self._known.get(key)
        if known is None:
            passes = self.measured.graph_widths(rows)
            seconds = sum(self._one(width, context + self._more) for width in passes)
            known = self._known[key] = seconds + rows * self._row_s
        return known

    def curve(self, context: int) -> CostCurve:
        """Return the cost curve as a policy takes it."""
        return CostCurve(_WIDTHS, tuple(self.seconds(rows, context) for rows in _WIDTHS))

    def _one(self, rows: int, context: int) -> float:
        below, above = self._lines[0], self._lines[-1]
        for line in self._lines:
            if line[0] <= context:
                below = line
            else:
                above = line
                break
        low, high = below[1].at(rows), above[1].at(rows)
        if not below[0] < context < above[0]:
            return high if context >= above[0] else low
        share = (context - below[0]) / (above[0] - below[0])
        return low * (1 - share) + high * share
