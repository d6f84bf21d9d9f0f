r"""Plans for another machine, from its device card.

::

    case = WhatIf(target="7B int4", draft="0.5B int4", acceptance=0.7)
    found = elsewhere("demo", "snapdragon-8-gen-3", case)
    print(found.decision.chosen.plan.label, found.slow, found.fast)
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.simulation import cards
from benchmarks.simulation.cards import Card
from benchmarks.simulation.elsewhere import Drafting, Sizes, memory_of, profile_of, span
from benchmarks.simulation.roofline import ModelSize, parse
from edgedec._support.amounts import size
from edgedec._support.model_path import is_gguf
from edgedec.bundle import Bundle, Role
from edgedec.bundle.folder import KV_BYTES
from edgedec.errors import InputError
from edgedec.loading.sources import Models
from edgedec.planning.choose import decide
from edgedec.profiling import run
from edgedec.profiling.rounds import LENGTH
from edgedec.profiling.run import OnProgress, ProfileOptions
from edgedec.records.plan import Decision, Plan, Prediction
from edgedec.records.rounds import DrafterRounds, Drafts
from edgedec.records.workload import Workload
from edgedec.runtimes import registry

# Assumed range of acceptance, for models whose acceptance was not measured; shown with the plan.
ASSUMED = (0.5, 0.8)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A what-if request.

    Attributes:
        target, draft: sizes as ``7B int4``; None is the bundle's own model.
        target_devices, draft_devices: devices of the card; empty is all.
        acceptance: chance that a token of the draft model is right, each by itself, in place of
            what was measured with a bundle; drafters without a model are then left out.
        memory: bytes for all that a plan holds; None is the machine's.

    """

    target: str | None = None
    draft: str | None = None
    target_devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    acceptance: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.acceptance is not None and not 0 <= self.acceptance <= 1:
            raise InputError(f"acceptance is {self.acceptance}: expected a chance, 0 to 1")

    @property
    def unknown(self) -> bool:
        """True if there is a draft model whose acceptance is neither given nor measured."""
        return self.acceptance is None and self.draft is not None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The answer to a what-if request.

    Attributes:
        decision: by the middle of the card's ranges.
        slow, fast: what the chosen plan gives where all ranges are at their slow or fast end.
        plain_slow, plain_fast: likewise, plain decoding at the same place.
        assumed: what the figures rest on, in whole sentences.

    """

    decision: Decision
    slow: Prediction
    fast: Prediction
    plain_slow: Prediction
    plain_fast: Prediction
    assumed: tuple[str, ...] = field(default=())


def elsewhere(
    bundle: str | Path,
    card: str | Path,
    case: WhatIf | None = None,
    workload: Workload | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> Elsewhere:
    """Plan for the machine of a card.

    Args:
        bundle: says what is accepted, and whose sizes count where none are wished.
        card: name of a card that comes with the package, or a TOML file.
        case: what to plan for.
        workload: what is to be decoded.
        on_progress: hears what is being measured, where the bundle has no profile here yet.

    Raises:
        InputError: no such card or device, a size that is none, a draft without a size, without
            an acceptance, or larger than the target.
        BundleError, ProfileError: see ``run.profile``.
        PlanError, MemoryBudgetError: see ``planning.choose.decide``.

    """
    case, workload = case or WhatIf(), workload or Workload()
    if case.unknown:
        raise InputError(
            f"the acceptance rate of a {case.draft} draft was not measured here: give --acceptance"
        )
    machine = cards.load(card)
    models = _models(bundle, case)
    drafting, known = _drafting(bundle, case, workload, on_progress)
    if models.draft is not None and not drafting.with_model:
        raise InputError(
            f"{bundle} has no draft model to measure acceptance with: give --acceptance"
        )
    profile = profile_of(machine, models, drafting)
    decision = decide(profile, workload, case.memory, None, memory_of(machine))
    chosen = decision.chosen.plan
    # A plan's own context, as the planner gives it.
    workload = replace(workload, max_context=decision.max_context)
    slow, fast = span(machine, models, drafting, chosen, workload)
    plain_slow, plain_fast = span(machine, models, drafting, Plan(chosen.target), workload)
    assumed = _assumed(machine, drafting, known)
    return Elsewhere(decision, slow, fast, plain_slow, plain_fast, assumed)


def between(
    bundle: str | Path, card: str | Path, case: WhatIf, workload: Workload | None = None
) -> tuple[Elsewhere, Elsewhere]:
    """Plan for models whose acceptance is unknown: at both ends of ``ASSUMED``.

    Args:
        bundle, card, workload: as ``elsewhere`` takes them.
        case: without an acceptance.

    Raises:
        InputError, BundleError, PlanError, MemoryBudgetError: see ``elsewhere``.

    """
    low, high = (
        elsewhere(bundle, card, replace(case, acceptance=chance), workload) for chance in ASSUMED
    )
    return low, high


def _assumed(machine: Card, drafting: Drafting, known: str) -> tuple[str, ...]:
    """Return the assumptions behind the figures, in whole sentences."""
    assumed = [
        f"Pass times come from a roofline model of this machine: {machine.description}.",
        known,
        "Python's own time per round is "
        + (
            "left out."
            if drafting.overhead_s == 0
            else f"as here, {drafting.overhead_s * 1e6:.0f} us."
        ),
    ]
    if len(machine.devices) > 1 and not all(d.shared for d in machine.devices.values()):
        assumed.append(
            "Memory is counted over all devices together; of each of them only that it holds"
            " one model's weights."
        )
    return tuple(assumed)


def _models(bundle: str | Path, case: WhatIf) -> Sizes:
    head = None
    if case.target is not None:
        target = parse(case.target)
        draft = None if case.draft is None else parse(case.draft)
    else:
        target, draft, head = _of_bundle(bundle, case)
    if draft is not None and draft.weight_bytes > target.weight_bytes:
        raise InputError(
            f"the draft ({draft.name}, {size(draft.weight_bytes)}) is larger than the target"
            f" ({target.name}, {size(target.weight_bytes)}): swap them"
        )
    return Sizes(target, draft, case.target_devices, case.draft_devices, head)


def _of_bundle(
    bundle: str | Path, case: WhatIf
) -> tuple[ModelSize, ModelSize | None, ModelSize | None]:
    if is_gguf(bundle):
        raise InputError(
            f"{bundle} is not a bundle, so the size of each model is not known: give them, as in"
            " --target '7B int4' --draft '0.5B int4'"
        )
    opened = Bundle.open(bundle)
    draft = None if opened.draft is None else size_of(opened, opened.draft)
    head = None if opened.head is None or case.draft else size_of(opened, opened.head)
    return size_of(opened, opened.target), parse(case.draft) if case.draft else draft, head


def size_of(bundle: Bundle, role: Role) -> ModelSize:
    """Return a model of a bundle, in its first format; InputError if its size is not stated."""
    variant = next(role.variants[name] for name in registry.formats() if name in role.variants)
    dims = role.dims
    missing = [n for n in ("parameters", "layers", "hidden", "vocab_size") if n not in dims]
    if missing:
        raise InputError(
            f"the bundle does not say the {role.role}'s {missing[0]}: give sizes with --target"
            " and --draft, as in '7B int4'"
        )
    heads = dims.get("kv_heads", dims.get("heads", 1))
    width = dims.get("head_dim", dims["hidden"] // dims.get("heads", 1))
    return ModelSize(
        name=role.source,
        parameters=dims["parameters"],
        weight_bytes=bundle.stored_bytes(role, variant.format),
        kv_bytes_per_token=2 * dims["layers"] * heads * width * KV_BYTES.get(variant.kv, 2),
        layers=dims["layers"],
        hidden=dims["hidden"],
        weights=_format(variant.weights),
        vocab_size=dims["vocab_size"],
        max_context=dims.get("max_context", 4096),
    )


def _format(weights: str) -> str:
    """Return the kind of weights that a model's are like."""
    if weights in ("fp32", "f32"):
        return "fp32"
    if weights in ("fp16", "f16", "bf16"):
        return "fp16"
    return "int4" if weights.startswith(("int4", "q4")) else "int8"


def _drafting(
    bundle: str | Path, case: WhatIf, workload: Workload, on_progress: OnProgress | None
) -> tuple[Drafting, str]:
    """Return how the pair drafts, and how that is known."""
    if case.acceptance is not None:
        return _independent(case.acceptance), (
            f"Each drafted token is accepted with probability {case.acceptance:g}, independently."
        )
    if case.target is not None:
        return Drafting(), (
            "Nothing was measured with such a target: drafters without a model are left out."
        )
    options = ProfileOptions(temperature=workload.temperature)
    profile = run.profile(Models.find(bundle), options, on_progress)
    found = Drafting(profile.rounds, profile.draft_overhead_s, profile.head_overhead_s)
    return found, f"Acceptance was measured here, with {bundle} on calibration texts."


def _independent(chance: float) -> Drafting:
    """Return rounds of a chain whose every token is right with this probability."""
    chances = tuple(chance**length for length in range(1, LENGTH + 1))
    drafts = Drafts("model", 1.0, chances, LENGTH)
    made = DrafterRounds(
        drafter=drafts.source,
        draft_length=LENGTH,
        temperature=0.0,
        rounds=1,
        tokens=1 + sum(chances),
        rows=1 + LENGTH,
        draft_passes=LENGTH,
        drafts=(drafts,),
    )
    return Drafting((made,))
