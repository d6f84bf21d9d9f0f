"""A profile: measured costs of each model at each place, and of each drafter's rounds."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.decoding.policy.cost import CostCurve
from edgedec.errors import ProfileError
from edgedec.records.place import Place
from edgedec.records.rounds import DrafterRounds

SCHEMA = 6


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Seconds of a pass by its rows, at one length of the cache.

    Attributes:
        context: tokens in the cache.
        widths: rows, ascending.
        seconds: medians.
        spread: half the distance between the quartiles, as a share of the median.

    """

    context: int
    widths: tuple[int, ...]
    seconds: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def curve(self) -> CostCurve:
        """Return the cost curve in the form a policy takes."""
        return CostCurve(self.widths, self.seconds)


@dataclass(frozen=True, slots=True)
class Parity:
    """A comparison of a place's logits with those of the reference place.

    Attributes:
        agreement: share of rows with the same first choice.
        divergence: mean Kullback-Leibler divergence in nats, reference first.
        usable: within the floor.
        reason: why not, else empty.

    """

    agreement: float
    divergence: float
    usable: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One model at one place.

    Attributes:
        role: ``target``, ``draft`` or ``head``.
        times: by context, ascending.
        prefill_s: seconds per token of a long prompt.
        load_s: seconds to load it and open a session.
        rss_bytes: growth of the process: weights, buffers and a short cache.
        weight_bytes, kv_bytes_per_token, max_context, vocab_size: as ``ModelInfo``.
        row_widths, branches: as ``Capabilities``.
        steady: False when the machine was too busy to measure.
        rolls_back: False for a recurrent model of which a rejected token takes another pass.
        process_bytes: of a process with the runtime but no model.
        scratch_bytes_per_token, state_bytes, lookup_bytes: as ``ModelInfo``.
        shows_states: it shows the streams that a head reads.

    """

    role: str
    name: str
    place: Place
    times: tuple[PassTimes, ...]
    prefill_s: float
    load_s: float
    rss_bytes: int
    weight_bytes: int
    kv_bytes_per_token: int
    max_context: int
    vocab_size: int
    row_widths: tuple[int, ...] | None
    branches: int | None
    parity: Parity
    steady: bool
    rolls_back: bool = True
    process_bytes: int = 0
    scratch_bytes_per_token: int = 0
    shows_states: bool = False
    state_bytes: int = 0
    lookup_bytes: int = 0

    @property
    def tree(self) -> bool:
        """True if branching trees are verified."""
        return self.branches != 1

    def graph_widths(self, rows: int) -> list[int]:
        """Return the rows that are actually computed, by pass: as given, or as static graphs
        require.

        Rows beyond the widest graph take further passes of it; the rest is padded to the next
        graph.
        """
        if self.row_widths is None:
            return [rows]
        widest = self.row_widths[-1]
        whole, rest = divmod(rows, widest)
        padded = [next(width for width in self.row_widths if width >= rest)] if rest else []
        return [widest] * whole + padded

    def seconds(self, rows: int, context: int) -> float:
        """Return the seconds of computing ``rows`` rows, in the passes of ``graph_widths``.

        Interpolated linearly between measured contexts; beyond them as at the last one.
        """
        return sum(self._pass_s(width, context) for width in self.graph_widths(rows))

    def _pass_s(self, rows: int, context: int) -> float:
        below = [times for times in self.times if times.context <= context]
        above = [times for times in self.times if times.context > context]
        if not below or not above:
            nearest = below[-1] if below else above[0]
            return nearest.curve.at(rows)
        low, high = below[-1], above[0]
        share = (context - low.context) / (high.context - low.context)
        return low.curve.at(rows) * (1 - share) + high.curve.at(rows) * share


@dataclass(frozen=True, slots=True)
class Contention:
    """The slowdown of two models' passes when both compute at once.

    Attributes:
        target, draft: labels of the places.
        target_factor, draft_factor: time at once over time alone.

    """

    target: str
    draft: str
    target_factor: float
    draft_factor: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Measurements of a pair on a machine.

    Attributes:
        machine: facts that must not change for it to be valid.
        bundle: hash of the models' files.
        versions: of the runtimes, by package.
        measured: every model at every place, including unusable ones.
        rounds: each drafter's rounds on calibration texts, and plain ones.
        draft_overhead_s: seconds outside the draft model for each token that it drafts.
        head_overhead_s: likewise, of a head.
        prompts: the texts' prompts: ``built-in``, or the hash of the user's own.
        thorough: whether more places, widths and contexts were measured than usual.
        notes: what was left out and why, one line each.
        texts: the prompts, in words for the user.
        busy: share of the processor that other programs used while it was measured, 0 to 1; None if
            unknown.
        contention: how much two devices of a card slow each other; empty on a real machine, where
            plans run.

    """

    schema: int
    machine: dict[str, str]
    bundle: str
    versions: dict[str, str]
    measured: tuple[Measured, ...]
    rounds: tuple[DrafterRounds, ...] = ()
    draft_overhead_s: float = 0.0
    head_overhead_s: float = 0.0
    prompts: str = "built-in"
    thorough: bool = False
    notes: tuple[str, ...] = ()
    texts: str = ""
    busy: float | None = None
    contention: tuple[Contention, ...] = ()

    @property
    def models(self) -> str:
        """The names of the target and of the draft, if there is one."""
        names = {one.role: one.name for one in self.measured}
        return " + ".join(names[role] for role in ("target", "draft") if role in names)

    def of(self, role: str) -> list[Measured]:
        """Return the places at which a role can be used."""
        return [m for m in self.measured if m.role == role and m.parity.usable]

    def at(self, role: str, place: Place) -> Measured:
        """Return the measurements of a role at a place; ProfileError if there are none."""
        for measured in self.measured:
            if measured.role == role and measured.place == place:
                return measured
        raise ProfileError(f"the {role} was not measured at {place.label}: profile it again")

    def head_beside(self, target: Place) -> Measured | None:
        """Return the measurements of the head for a target at a place; None if it cannot draft.

        A head has no place of its own: it runs on the processor, with its target's threads.
        """
        if not self.at("target", target).shows_states:
            return None
        heads = (one for one in self.of("head") if one.place.format == target.format)
        return min(heads, key=lambda one: abs(one.place.threads - target.threads), default=None)

    def slowdown(self, target: Place, draft: Place) -> tuple[float, float]:
        """Return how much slower each model's passes are when both compute; 1 if unknown."""
        labels = target.label, draft.label
        for met in self.contention:
            if (met.target, met.draft) == labels:
                return met.target_factor, met.draft_factor
        return 1.0, 1.0
