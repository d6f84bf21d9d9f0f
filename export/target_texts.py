"""The texts that the target writes, for whatever of an export reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgedec.export import calibration, formats
from edgedec.export.calibration import Texts
from edgedec.export.describing import GivenModel
from edgedec.export.job import ExportJob
from edgedec.export.options import Progress


class TargetTexts:
    """Texts for calibration, written when they are first asked for.

    Args:
        target: the model that writes them.
        folder: scratch space for a model.

    Attributes:
        allowed: whether the user lets texts be written to calibrate on, or gave one.
        made: whether there are some of these; where they are not allowed, a few may be written to
            measure on.

    """

    def __init__(
        self, target: GivenModel, job: ExportJob, folder: Path, progress: Progress
    ) -> None:
        self._target, self._job, self._folder, self._progress = target, job, folder, progress
        self._found: Texts | None = None
        options = job.options
        self.allowed = options.calibration != "none" or options.calibration_text is not None

    @property
    def made(self) -> bool:
        return self.allowed and self._found is not None

    def of(self, source: GivenModel) -> Texts:
        """Return the texts in a model's own tokens, none longer than its context; see ``texts``."""
        if self._found is None:
            few = not self.allowed
            self._found = calibration.texts(self._job, self._folder, self._progress, few)
        own = self._found
        if source.tokenizer != self._target.tokenizer:
            paths = self._target.checkpoint.texts, source.checkpoint.texts
            own = calibration.retokenized(own, *paths)
        longest = source.checkpoint.spec.within(self._job.options.max_context).max_context
        return tuple(text[:longest] for text in own)


def calibrate(
    sources: Sequence[GivenModel], jobs: Mapping[str, list[ExportJob]], texts: TargetTexts
) -> None:
    """Set the texts of the jobs that are calibrated, or whose weights are chosen on texts."""
    for source in sources:
        for index, job in enumerate(jobs[source.role]):
            measured = formats.is_measured(job)
            calibrated = texts.allowed and formats.reads_texts(job)
            if not (measured or calibrated):
                continue
            given = texts.of(source)
            calibrates, heldout = calibration.held_out(given) if calibrated else ((), given)
            jobs[source.role][index] = dataclasses.replace(job, texts=calibrates, heldout=heldout)
