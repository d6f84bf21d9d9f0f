"""Makes the profile of another machine: pass times of a card, and acceptance as measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.simulation.cards import Card
from benchmarks.simulation.roofline import ModelSize, Roofline, contention, peak
from edgedec.decoding import drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError
from edgedec.planning.estimate import Forecast
from edgedec.records.place import CPU
from edgedec.records.plan import Plan, Prediction
from edgedec.records.profile import SCHEMA, Measured, Profile
from edgedec.records.rounds import DrafterRounds
from edgedec.records.workload import Workload


@dataclass(frozen=True, slots=True)
class Sizes:
    """The models that run there.

    Attributes:
        target, draft, head: their sizes; the last two may be None.
        target_devices, draft_devices: names of devices they may run on; empty is all.

    """

    target: ModelSize
    draft: ModelSize | None = None
    target_devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    head: ModelSize | None = None


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a pair drafts, and Python's own time, which cards do not contain.

    Attributes:
        rounds, draft_overhead_s, head_overhead_s: as ``Profile``; of the pair, or assumed.

    """

    rounds: tuple[DrafterRounds, ...] = ()
    draft_overhead_s: float = 0.0
    head_overhead_s: float = 0.0

    @property
    def overhead_s(self) -> float:
        """Seconds of a plain round outside its pass."""
        return next((one.overhead_s for one in self.rounds if one.drafter == PLAIN), 0.0)

    @property
    def with_model(self) -> bool:
        """True if a draft model's acceptance is known."""
        known = (one.drafter for one in self.rounds if one.draft_passes)
        return any(not drafting.info(name).needs_head for name in known)


def profile_of(card: Card, models: Sizes, how: Drafting) -> Profile:
    """Return the profile that the card's machine would have, at the middle of each range.

    Raises:
        InputError: the card has no such device, or none that computes in the models' precision.

    """
    targets = _measured(card, "target", models.target, models.target_devices)
    drafts: list[Measured] = []
    heads: list[Measured] = []
    if models.head is not None and CPU in card.devices:
        heads = _measured(card, "head", models.head, (CPU,))
        targets = [replace(one, shows_states=True) for one in targets]
    if models.draft is not None:
        drafts = _measured(card, "draft", models.draft, models.draft_devices)
    return Profile(
        schema=SCHEMA,
        machine={"card": card.name},
        bundle="",
        versions={},
        measured=(*targets, *drafts, *heads),
        contention=tuple(
            contention(card, target.place.device, draft.place.device)
            for target in targets
            for draft in drafts
        ),
        rounds=how.rounds,
        draft_overhead_s=how.draft_overhead_s,
        head_overhead_s=how.head_overhead_s,
    )


def span(
    card: Card, models: Sizes, how: Drafting, plan: Plan, workload: Workload
) -> tuple[Prediction, Prediction]:
    """Return a plan's speed at the slow and at the fast end of all the card's ranges."""
    slow, fast = (
        Forecast(profile_of(corner(card, fast=end), models, how), workload).predict(plan)
        for end in (False, True)
    )
    return slow, fast


def corner(card: Card, *, fast: bool) -> Card:
    """Return the card with every range at one end, except memory, so that the same plans fit."""
    ends = {}
    for where, figure in card.figures().items():
        name = where.rpartition(".")[2]
        if name != "memory_bytes":
            # Of seconds, fewer are faster.
            ends[where] = figure.high if fast is not name.endswith("_s") else figure.low
    return card.fixed(ends)


def _measured(card: Card, role: str, size: ModelSize, names: Sequence[str]) -> list[Measured]:
    for name in names:
        card.device(name)
    chosen = [device for device in card.devices.values() if not names or device.name in names]
    found, missing = [], []
    for device in chosen:
        try:
            peak(device, size.precision)
        except InputError as error:
            missing.append(str(error))
            continue
        found.append(Roofline(card, device.name, size).measured(role))
    if not found:
        raise InputError(f"the {role} ({size.name}) cannot run on {card.name}: {missing[0]}")
    return found


def memory_of(card: Card) -> int:
    """Return the bytes of all memories; a shared one counts once."""
    shared = [d.memory_bytes.middle for d in card.devices.values() if d.shared]
    own = [d.memory_bytes.middle for d in card.devices.values() if not d.shared]
    return int(sum(own) + max(shared, default=0.0))
