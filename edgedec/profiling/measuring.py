"""Measures every place of a pair in turn, each in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from edgedec.errors import EdgedecError
from edgedec.loading.sources import Source
from edgedec.profiling import children, parity
from edgedec.profiling.children import HEAD, MeasurementJob
from edgedec.profiling.places import Site
from edgedec.profiling.prompts import SAMPLE
from edgedec.records.place import CPU
from edgedec.records.profile import Measured

# Most important first; with a short budget the last ones are left out.
WIDTHS = (1, 2, 4, 8, 3, 5, 6, 16, 7, 9, 12, 32, 17, 24)
THOROUGH_WIDTHS = (*WIDTHS, 10, 11, 13, 14, 15, 18, 20, 28)
CONTEXTS, THOROUGH_CONTEXTS = (32, 512), (32, 256, 512, 1024, 2048, 4096)
BUDGET_S, THOROUGH_BUDGET_S = 0.6, 3.0
# A place that takes longer hangs; the limit covers loading, graph compilation and passes.
_LIMIT_S = 90.0
_BYTES_PER_SECOND = 20 << 20

Tell = Callable[[str, int], None]


class Measuring:
    """Measures the places of a pair.

    Args:
        sources: by role, the model in every format.
        thorough: more widths, contexts and time.
        most_context: longest context at which passes are measured; None sets no limit.

    """

    def __init__(
        self,
        sources: Mapping[str, Sequence[Source]],
        sites: Sequence[Site],
        *,
        thorough: bool,
        most_context: int | None = None,
    ) -> None:
        self._sites = sites
        self._thorough = thorough
        contexts = THOROUGH_CONTEXTS if thorough else CONTEXTS
        self._contexts = tuple(sorted({min(one, most_context or one) for one in contexts}))
        self._samples = {
            role: tuple(models[0].read_tokenizer().encode(SAMPLE))
            for role, models in sources.items()
        }

    def places(self, tell: Tell) -> list[Measured]:
        """Measure every place; those that cannot be used are returned with the reason."""
        found: list[children.PlaceOutcome] = []
        for done, site in enumerate(self._sites):
            tell(f"{site.source.role} on {site.place.label}", done)
            found.append(self._one(site))
        return self._compared(found)

    def _one(self, site: Site) -> children.PlaceOutcome:
        job = self._job(site)
        try:
            site.source.admit()
        except EdgedecError as error:
            return children.PlaceOutcome(children.failed(job, str(error)), None)
        size = sum(path.stat().st_size for path in site.source.files.values())
        limit = (_LIMIT_S + size / _BYTES_PER_SECOND) * (3 if self._thorough else 1)
        return children.measure(job, limit)

    def _job(self, site: Site) -> MeasurementJob:
        thorough = self._thorough
        return MeasurementJob(
            role=site.source.role,
            path=str(site.source.path),
            place=site.place,
            sample=self._samples[site.source.role],
            contexts=self._contexts,
            widths=THOROUGH_WIDTHS if thorough else WIDTHS,
            budget_s=THOROUGH_BUDGET_S if thorough else BUDGET_S,
            files=tuple(map(str, site.source.files.values())) if site.source.role == HEAD else (),
        )

    def _compared(self, found: Sequence[children.PlaceOutcome]) -> list[Measured]:
        """Return the measurements with the parity of each place.

        The reference of a role is its first place on the processor in the format closest to fp32,
        the one with the most bytes. The first place of every other format is compared with the
        reference loosely, since its weights differ, and the other places of a format are compared
        strictly with its first.
        """
        by_site = list(zip(self._sites, found, strict=True))
        measured = []
        for site, outcome in by_site:
            own = [pair for pair in by_site if pair[0].source.role == site.source.role]
            measured.append(_with_parity(site, outcome, own))
        return measured


def _with_parity(
    site: Site, outcome: children.PlaceOutcome, own: Sequence[tuple[Site, children.PlaceOutcome]]
) -> Measured:
    if outcome.logits is None:
        return outcome.measured
    firsts: dict[str, tuple[Site, children.PlaceOutcome]] = {}
    for pair in own:
        if pair[1].logits is not None and _plain(pair[0]):
            firsts.setdefault(pair[0].place.format, pair)
    best = max(firsts.values(), key=lambda pair: pair[1].measured.weight_bytes, default=None)
    reference = firsts.get(site.place.format, best)
    if reference is not None and reference[1] is outcome:
        reference = best
    if reference is None or reference[1] is outcome or reference[1].logits is None:
        return outcome.measured
    judged = parity.compare(
        reference[1].logits,
        outcome.logits,
        reference[0].place.label,
        same_file=reference[0].source.path == site.source.path,
    )
    return dataclasses.replace(outcome.measured, parity=judged)


def _plain(site: Site) -> bool:
    """Return whether a place is the processor with the runtime's own kernels."""
    return site.place.device == CPU and site.place.provider is None
