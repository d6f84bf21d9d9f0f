"""Measures every place of a pair in turn, each in a process of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from edgedec.errors import EdgedecError
from edgedec.loading.sources import Source
from edgedec.profiling import children, parity
from edgedec.profiling.children import HEAD, MeasurementJob
from edgedec.profiling.places import Placed
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


def measure_places(
    sources: Mapping[str, Sequence[Source]],
    sites: Sequence[Placed],
    tell: Tell,
    *,
    thorough: bool,
    most_context: int | None = None,
) -> list[Measured]:
    """Measure every place of a pair; those that cannot be used are returned with the reason.

    Args:
        sources: by role, the model in every format.
        tell: called with what is measured next, and how many places are done.
        thorough: more widths, contexts and time.
        most_context: longest context at which passes are measured; None sets no limit.

    """
    all_contexts = THOROUGH_CONTEXTS if thorough else CONTEXTS
    contexts = tuple(sorted({min(one, most_context or one) for one in all_contexts}))
    samples = {
        role: tuple(models[0].read_tokenizer().encode(SAMPLE)) for role, models in sources.items()
    }
    found = []
    for done, placed in enumerate(sites):
        source = placed.source
        tell(f"{source.role} on {placed.place.label}", done)
        job = MeasurementJob(
            role=source.role,
            path=str(source.path),
            place=placed.place,
            sample=samples[source.role],
            contexts=contexts,
            widths=THOROUGH_WIDTHS if thorough else WIDTHS,
            budget_s=THOROUGH_BUDGET_S if thorough else BUDGET_S,
            files=tuple(map(str, source.files.values())) if source.role == HEAD else (),
        )
        found.append((placed, _outcome(source, job, 3 if thorough else 1)))
    return [
        _with_parity(
            placed, outcome, [one for one in found if one[0].source.role == placed.source.role]
        )
        for placed, outcome in found
    ]


def _outcome(source: Source, job: MeasurementJob, patience: int) -> children.PlaceOutcome:
    try:
        source.admit()
    except EdgedecError as error:
        return children.PlaceOutcome(children.failed(job, str(error)), None)
    size = sum(path.stat().st_size for path in source.files.values())
    return children.measure(job, (_LIMIT_S + size / _BYTES_PER_SECOND) * patience)


def _with_parity(
    placed: Placed,
    outcome: children.PlaceOutcome,
    own: Sequence[tuple[Placed, children.PlaceOutcome]],
) -> Measured:
    """Return a measurement with its parity, among those of its role.

    The reference of a role is its first place on the processor in the format closest to fp32, the
    one with the most bytes. The first place of every other format is compared with the reference
    loosely, since its weights differ, and the other places of a format are compared strictly with
    its first.
    """
    if outcome.logits is None:
        return outcome.measured
    firsts: dict[str, tuple[Placed, children.PlaceOutcome]] = {}
    for pair in own:
        if pair[1].logits is not None and _plain(pair[0]):
            firsts.setdefault(pair[0].place.format, pair)
    best = max(firsts.values(), key=lambda pair: pair[1].measured.weight_bytes, default=None)
    reference = firsts.get(placed.place.format, best)
    if reference is not None and reference[1] is outcome:
        reference = best
    if reference is None or reference[1] is outcome or reference[1].logits is None:
        return outcome.measured
    judged = parity.compare(
        reference[1].logits,
        outcome.logits,
        reference[0].place.label,
        same_file=reference[0].source.path == placed.source.path,
    )
    return dataclasses.replace(outcome.measured, parity=judged)


def _plain(placed: Placed) -> bool:
    """Return whether a place is the processor with the runtime's own kernels."""
    return placed.place.device == CPU and placed.place.provider is None
