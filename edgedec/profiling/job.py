"""Tasks of the measuring child processes."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.records.place import Place

TARGET, DRAFT = "target", "draft"


@dataclass(frozen=True, slots=True)
class MeasurementJob:
    """One model at one place.

    Attributes:
        role: ``target`` or ``draft``.
        path: the model's main file.
        place: where to put it.
        sample: tokens of some text in the model's own vocabulary.
        contexts: tokens in the cache to measure passes at, ascending.
        widths: rows to measure, most important first.
        budget_s: seconds for each context.

    """

    role: str
    path: str
    place: Place
    sample: tuple[int, ...]
    contexts: tuple[int, ...]
    widths: tuple[int, ...]
    budget_s: float

    @property
    def row_invariant(self) -> bool | None:
        """Row invariance as the loader would set it: only the target's logits decide the text."""
        return False if self.role == DRAFT else None


@dataclass(frozen=True, slots=True)
class Together:
    """Two models at separate places, to be measured at once."""

    target: MeasurementJob
    draft: MeasurementJob
