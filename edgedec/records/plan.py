"""Plans: where target and draft run, what drafts and how much, with their speeds."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError
from edgedec.records.place import Place

SCHEMA = 3
SEQUENTIAL, OVERLAPPED = SCHEDULES = "sequential", "overlapped"


def check_schedule(name: object) -> None:
    """Raise InputError for a schedule that does not exist."""
    if name not in SCHEDULES:
        raise InputError(f"no schedule {name!r:.40}: expected one of {', '.join(SCHEDULES)}")


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to decode.

    Attributes:
        draft: where the draft model runs; None if the drafter has none.
        drafter: a drafter's name; ``none`` is plain decoding.
        draft_length: drafted tokens per round; None lets the policy decide each round.
        depth: longest path of a drafted tree; None is ``draft_length``.
        schedule: ``sequential``, or ``overlapped``: draft while verifying.

    """

    target: Place
    draft: Place | None = None
    drafter: str = PLAIN
    draft_length: int | None = 0
    depth: int | None = None
    schedule: str = SEQUENTIAL

    @property
    def plain(self) -> bool:
        """True if nothing is drafted."""
        return self.drafter == PLAIN

    @property
    def label(self) -> str:
        """Short name for tables."""
        if self.plain:
            return f"plain on {self.target.label}"
        length = "auto" if self.draft_length is None else str(self.draft_length)
        draft = "" if self.draft is None else f" + {self.draft.label}"
        how = ", overlapped" if self.schedule == OVERLAPPED else ""
        return f"{self.drafter} {length} on {self.target.label}{draft}{how}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """The speed, latency and memory of a plan, by formula.

    Attributes:
        tokens_per_second: after the first round (1 / TPOT).
        ttft_s: of a prompt of the workload's length.
        peak_bytes: of everything the plan holds.
        block_efficiency: emitted tokens per target pass.

    """

    tokens_per_second: float
    ttft_s: float
    peak_bytes: int
    block_efficiency: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The measured speed of a plan that ran in turns with others, text by text.

    Attributes:
        tokens_per_second: 1 / mean TPOT over the texts.
        speedup: over the fastest plain plan of the trial: the harmonic mean of ``texts``.
        texts: by text, the median of the ratios of that plan's TPOT and this one's, each of one
            turn.
        block_efficiency: emitted tokens per target pass.
        turns: how often it decoded a text; slow plans stop early.

    """

    tokens_per_second: float
    speedup: float
    texts: tuple[float, ...]
    block_efficiency: float
    turns: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with its prediction, and its measured speed if it ran.

    Attributes:
        refused: why it cannot be chosen, else empty.
        measured: None if it did not run.

    """

    plan: Plan
    prediction: Prediction
    refused: str = ""
    measured: Trial | None = None

    @property
    def tokens_per_second(self) -> float:
        """Measured tokens per second, or those predicted if it did not run."""
        found = self.measured or self.prediction
        return found.tokens_per_second


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the planner.

    Attributes:
        schema: of this record, as a plan file holds it.
        machine, bundle, versions: of the profile it was made from.
        memory: bytes that were given; None is no limit.
        max_context: most tokens of a text with its prompt.
        chosen: the plan to use.
        fallbacks: plans to use when a place fails, best first; the last is plain.
        candidates: all that were considered: those that ran, those by formula, those refused; each
            best first.
        reasons: in whole sentences, for the user.
        texts: the texts it was made on, in words.
        busy: share of the processor that other programs used while the profile was measured or
            while plans ran, whichever is larger, 0 to 1; None where it is unknown.
        disturbed: why that is too much to rely on the plan, in words; empty if it is not.
        models: names of the target and of the draft, if there is one.

    """

    schema: int
    machine: dict[str, str]
    bundle: str
    versions: dict[str, str]
    memory: int | None
    max_context: int
    chosen: Candidate
    fallbacks: tuple[Plan, ...]
    candidates: tuple[Candidate, ...]
    reasons: tuple[str, ...]
    texts: str = ""
    busy: float | None = None
    disturbed: str = ""
    models: str = ""

    @property
    def untried(self) -> bool:
        """True if plans that draft could be used, and none of them was measured."""
        drafting = [one for one in self.candidates if not one.refused and not one.plan.plain]
        return bool(drafting) and not any(one.measured for one in drafting)
