"""Seconds of a model's passes, looked up often: a ``Measured`` with its lines precomputed."""

from __future__ import annotations

from edgedec.decoding.policy.cost import WIDTHS, CostCurve
from edgedec.errors import InputError
from edgedec.records.profile import Measured

# Widths of a policy's cost curve: those that `calibrate` would measure.
_WIDTHS = tuple(sorted(WIDTHS))


class PassCost:
    """Times of the passes of one model at one place.

    A workload's prompt may be longer than a trace's: passes take what they would after the longer
    prompt, and so does reading it.

    Args:
        measured: of the model.
        prompt: tokens of the trace's prompt.
        stands_for: tokens of the workload's prompt; None is as many.
        logits: whether full rows come back, as sampling needs, rather than the top tokens alone.

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
        """Return the seconds of reading tokens without returning their rows."""
        return tokens * self.measured.prefill_s * (self._longer if of_prompt else 1.0)

    def seconds(self, rows: int, context: int) -> float:
        """Return the seconds of a pass with ``context`` tokens of the trace in the cache."""
        key = (rows, context)
        known = self._known.get(key)
        if known is None:
            passes = self.measured.graph_widths(rows)
            seconds = sum(self._one(width, context + self._more) for width in passes)
            known = self._known[key] = seconds + rows * self._row_s
        return known

    def curve(self, context: int) -> CostCurve:
        """Return the cost curve in the form a policy takes."""
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
