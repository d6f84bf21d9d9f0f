"""Compares every drafter, rule and schedule with plain decoding on many prompts.

All prompts times all drafters, rules and schedules would be a hundred texts for each prompt. So
every prompt is decoded by every drafter with the default rule, one after the other, and once more
with each other rule and each other schedule, for which the drafters take turns. Greedy and sampled
texts alternate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.certificate.job import SAMPLED, Job
from benchmarks.certificate.ways import (
    Comparable,
    Way,
    alike_for_all,
    compared,
    drafters,
    with_length,
)
from edgedec.compare.interleaved import Progress
from edgedec.decoding import drafting
from edgedec.decoding.acceptance import RULES, GumbelCoupling, rule
from edgedec.loading.build import OpenOptions
from edgedec.loading.drafters import drafter_name
from edgedec.pipeline import Pipeline
from edgedec.records.plan import OVERLAPPED
from edgedec.verify.results import GREEDY, Verification
from edgedec.verify.same_texts import decode, plainly

# Separates the rule or schedule from the drafter in a name.
TURN = ": "
_BOTH = (GREEDY, SAMPLED)
_ONLY_GREEDY = (GREEDY,)


def compare_chunk(
    job: Job, options: OpenOptions, indices: range, progress: Progress
) -> Verification:
    """Decode a chunk's prompts plainly and in every configuration, and compare them."""
    prompts = [job.prompts[index] for index in indices]
    cases = job.cases(indices)
    progress.expect(len(cases) * len(prompts))
    with Pipeline.open(job.bundle, plainly(options)) as pipeline:
        options = alike_for_all(pipeline, options)
        plain = decode(pipeline, prompts, cases, progress)
        names = ["auto", *drafters(pipeline.pair, options)]
        auto = drafter_name(pipeline.pair, options)
    given = Comparable(job.bundle, options, prompts, cases, plain)
    return compared(given, list(ways(options, names, indices, auto)), progress)


def ways(options: OpenOptions, names: Sequence[str], indices: range, auto: str) -> Iterator[Way]:
    """Yield the configurations for a chunk's prompts, ``auto`` first, as in ``names``.

    ``auto`` is the drafter that it stands for.
    """
    for turn, name in enumerate(names):
        opened = with_length(options.changed(drafter=name))
        yield Way(name, opened, texts=_alternating(indices, turn))
    yield Way("auto, lengths by cost", options, texts=_alternating(indices, len(names)))
    for other in RULES:
        if other != GumbelCoupling.name and rule(other).lossless:
            modes = _BOTH if rule(other).coupled else _ONLY_GREEDY
            by_rule = options.changed(accept=other)
            yield from _in_turn(f"--accept {other}", by_rule, names, indices, modes)
    able = [name for name in names if drafting.info(auto if name == "auto" else name).overlaps]
    overlapped = options.changed(schedule=OVERLAPPED)
    yield from _in_turn(OVERLAPPED, overlapped, able, indices, _BOTH)


def _alternating(indices: range, turn: int) -> frozenset[tuple[str, int]]:
    """Return each prompt once, greedy or sampled, alternating from turn to turn."""
    return frozenset((_BOTH[(index + turn) % 2], number) for number, index in enumerate(indices))


def _in_turn(
    about: str, options: OpenOptions, names: Sequence[str], indices: range, modes: Sequence[str]
) -> Iterator[Way]:
    """Yield a configuration for each drafter; together they decode each prompt once."""
    for turn, name in enumerate(names):
        texts = frozenset(
            (modes[index // len(names) % len(modes)], number)
            for number, index in enumerate(indices)
            if index % len(names) == turn
        )
        if texts:
            opened = with_length(options.changed(drafter=name))
            yield Way(f"{about}{TURN}{name}", opened, texts=texts)
