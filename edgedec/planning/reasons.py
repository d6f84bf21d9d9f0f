"""Explains a decision in sentences: the choice, its gain, the alternatives and the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgedec._support.amounts import size, speed
from edgedec._support.fields import printable
from edgedec.hardware.contention import BUSY
from edgedec.planning.contenders import WeighedCandidate
from edgedec.planning.memory_fit import MemoryFit
from edgedec.records.plan import OVERLAPPED, Trial
from edgedec.records.profile import Profile
from edgedec.records.workload import Workload

# Most reasons to give when everything is refused.
_MOST_WHY = 2


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """What a decision was made from.

    Attributes:
        chosen, plain: the plan to use and the fastest without drafts; may be the same.
        drafting: usable plans that draft, best first; only those that ran, if any did.
        refused: the plans that cannot be used.
        nothing_ran: why plans that were to run could not be measured; empty if they were.

    """

    profile: Profile
    workload: Workload
    memory: MemoryFit
    chosen: WeighedCandidate
    plain: WeighedCandidate
    drafting: tuple[WeighedCandidate, ...]
    refused: tuple[WeighedCandidate, ...]
    nothing_ran: str = ""


def reasons(facts: DecisionFacts) -> Iterator[str]:
    """Yield whole sentences, the most important first."""
    if facts.chosen.plan.plain:
        yield from _plain(facts)
    else:
        yield from _speculative(facts)
    yield from _overlap(facts)
    yield from _memory(facts)
    yield from _places(facts)
    for note in facts.profile.notes:
        yield f"Left out: {' '.join(note.split()).rstrip('.')}."


def _against(option: WeighedCandidate, other: WeighedCandidate) -> str:
    return f"{option.rate / other.rate:.2f} times"


def _decodes(option: WeighedCandidate) -> str:
    """Return the start of a sentence on a plan's speed: ``X decoded 12 tokens/s``."""
    verb = "is predicted to decode" if option.candidate.measured is None else "decoded"
    return f"{option.plan.label} {verb} {speed(option.rate)} tokens/s"


def _speculative(facts: DecisionFacts) -> Iterator[str]:
    chosen, plain = facts.chosen, facts.plain
    yield (
        f"{_decodes(chosen)}, {_against(chosen, plain)} the {speed(plain.rate)} of"
        f" {plain.plan.label}{_spread(chosen.candidate.measured, facts.profile.texts)}."
    )
    measured = chosen.candidate.measured or chosen.candidate.prediction
    yield f"A round gives {measured.block_efficiency:.2f} tokens."


def _spread(trial: Trial | None, texts: str) -> str:
    """Return how far the measured speed-up differs between texts; empty if nothing ran."""
    if trial is None:
        return ""
    least, most = min(trial.texts), max(trial.texts)
    return f": from {least:.2f} to {most:.2f} times{_on(trial, texts)}, which both decoded in turns"


def _on(trial: Trial | None, texts: str) -> str:
    """Return the texts that a plan decoded; empty if it did not run."""
    if trial is None:
        return ""
    return f" on {len(trial.texts)} of the {texts or 'texts'}"


def _plain(facts: DecisionFacts) -> Iterator[str]:
    plain = facts.plain
    yield f"{_decodes(plain)}{_on(plain.candidate.measured, facts.profile.texts)}."
    if facts.nothing_ran:
        yield (
            "Plain decoding is chosen, since no plan that drafts could be measured:"
            f" {printable(facts.nothing_ran).rstrip('.')}."
        )
        return
    if not facts.drafting:
        why = dict.fromkeys(o.candidate.refused for o in facts.refused if not o.plan.plain)
        because = f": {'; '.join(list(why)[:_MOST_WHY])}" if why else ""
        yield f"Speculation is refused: no plan that drafts can be used here{because}."
        return
    best = facts.drafting[0]
    too_little = "" if best.rate <= plain.rate else ", which is too little to rely on"
    yield (
        f"Speculation is refused. The best plan that drafts: {_decodes(best)},"
        f" {_against(best, plain)} plain decoding's{too_little}"
        f"{_spread(best.candidate.measured, facts.profile.texts)}."
    )


def _overlap(facts: DecisionFacts) -> Iterator[str]:
    options = [o for o in facts.drafting if o.plan.schedule == OVERLAPPED]
    chosen = facts.chosen
    if not options:
        return
    if chosen.plan.schedule == OVERLAPPED:
        sequential = next((o for o in facts.drafting if o.plan.schedule != OVERLAPPED), None)
        than = f", {_against(chosen, sequential)} {sequential.plan.label}" if sequential else ""
        yield f"Overlap is used: the draft works while the target verifies{than}."
        return
    yield (
        f"Overlap is not used. Its best plan: {_decodes(options[0])},"
        f" {_against(options[0], chosen)} the speed of the chosen plan."
    )


def _memory(facts: DecisionFacts) -> Iterator[str]:
    chosen = facts.chosen
    peak = size(chosen.candidate.prediction.peak_bytes)
    target = facts.profile.at("target", chosen.plan.target)
    limit = target.max_context
    memory = facts.memory
    if target.state_bytes:
        yield (
            f"{size(target.state_bytes)} of its memory are the state of layers without keys and"
            " values, which does not grow with the context."
        )
    if memory.limit is None:
        yield f"It holds up to {peak} with a context of {chosen.context} tokens."
        return
    yield (
        f"It holds up to {peak} of the {size(memory.limit)} {memory.whence}, with a context of"
        f" {chosen.context} tokens."
    )
    if facts.workload.max_context is None and chosen.context < limit:
        yield f"More memory would allow a context of up to {limit} tokens."
    faster = [o for o in facts.refused if o.candidate.refused.startswith("over the memory")]
    # What does not fit did not run, so formulas are compared.
    by_formula = chosen.predicted
    faster = [o for o in faster if o.rate > by_formula]
    if faster:
        best = max(faster, key=lambda o: (o.rate, o.plan.label))
        yield (
            f"{best.plan.label} would be, by formula, {best.rate / by_formula:.2f} times as fast,"
            f" but needs {size(best.candidate.prediction.peak_bytes)}."
        )


def _places(facts: DecisionFacts) -> Iterator[str]:
    seen: set[str] = set()
    for measured in sorted(facts.profile.measured, key=lambda m: (m.role, m.place.label)):
        if not measured.parity.usable:
            why = measured.parity.reason or "its results differ too much from the reference's"
            seen.add(f"The {measured.role} is not used at {measured.place.label}: {why}.")
    yield from sorted(seen)
    why = disturbed(facts)
    if why:
        yield f"The machine was busy when measured: {why}. --refresh measures again."


def disturbed(facts: DecisionFacts) -> str:
    """Return why the chosen plan's measurements may be unreliable; empty if they are not."""
    busy = facts.profile.busy
    if busy is not None and busy > BUSY:
        return (
            f"other programs used {busy:.0%} of the processor's time; above {BUSY:.0%},"
            " pass times are not reliable"
        )
    plan = facts.chosen.plan
    used = [facts.profile.at("target", plan.target)]
    used += [] if plan.draft is None else [facts.profile.at("draft", plan.draft)]
    unsteady = [one.place.label for one in used if not one.steady]
    return f"the passes on {unsteady[0]} were interrupted too often to agree" if unsteady else ""
