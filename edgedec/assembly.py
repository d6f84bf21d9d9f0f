"""From a bundle and options to sessions, drafter, policy and engine, each found by name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from edgedec.bundle import Bundle, Role
from edgedec.decoding import acceptance, drafting, policy
from edgedec.decoding.acceptance import AcceptanceRule
from edgedec.decoding.drafting.base import Drafter
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.session import Model, Session
from edgedec.errors import BundleError, InputError
from edgedec.memory.budget import CachePlan, plan_caches
from edgedec.placement.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.text import Tokenizer


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """How to decode.

    Attributes:
        draft: a drafter's name; ``auto`` is ``hybrid`` where the bundle has a draft model,
            else ``lookup``; ``none`` is plain decoding.
        draft_length: ``auto`` measures costs and decides each round; a number is fixed.
        threads: of each model; None is one per available core, fewer for small models.
        providers: ONNX Runtime execution providers, most wanted first.
        max_context: tokens a text may have with its prompt; None is the model's own limit.
        kv_memory: bytes for all key/value caches; None is no limit.
        accept: an acceptance rule's name; None is the Gumbel coupling, which gives a
            seed's own text whatever is drafted.
        row_invariant: pad passes so that a row's numbers do not depend on how many rows
            are computed with it, and the text of a seed not on what was drafted, near-ties
            included. None does so for weights that are streamed from memory, where it
            costs nothing, and drafters of chains; with small quantised ones, where it would,
            two runs may part where two tokens are nearly tied. True lets no drafter branch.
    """

    draft: str = "auto"
    draft_length: int | str = "auto"
    threads: int | None = None
    providers: Sequence[str] = ("CPUExecutionProvider",)
    max_context: int | None = None
    kv_memory: int | None = None
    accept: str | None = None
    row_invariant: bool | None = None


@dataclass(slots=True)
class Parts:
    """What was put together; ``close`` takes it apart."""

    target: Model
    engine: Engine
    tokenizer: Tokenizer
    plan: dict[str, Any]
    stack: ExitStack

    def close(self) -> None:
        """Close sessions first, models after."""
        self.stack.close()


def assemble(bundle: Bundle, options: OpenOptions) -> Parts:
    """Load, size, connect; whatever was opened is closed again when a later step fails.

    Raises:
        BundleError, RuntimeUnavailable, MemoryBudgetError, InputError.
    """
    rule = acceptance.rule(options.accept or "coupling")
    drafter_name = _drafter_name(bundle, options)
    with ExitStack() as stack:
        tokenizer = Tokenizer.load(bundle.tokenizer)
        target = _load(bundle.target, options, stack, _row_invariant(options, drafter_name))
        draft = None
        if drafting.needs_model(drafter_name):
            draft = _load(_draft_role(bundle, drafter_name), options, stack, False)
            _check_vocabularies(target, draft)
        caches = plan_caches(
            target.info,
            draft.info if draft else None,
            max_context=options.max_context,
            kv_memory=options.kv_memory,
        )
        session = _open(target, caches.capacity, stack)
        draft_session = _open(draft, caches.capacity, stack) if draft else None
        chosen_policy = _policy(options, drafter_name, session, draft_session)
        drafter = drafting.create(
            drafter_name,
            vocab_size=target.info.vocab_size,
            draft=draft_session,
            # What row invariance promises holds for chains.
            branching=target.capabilities.tree and not target.capabilities.row_invariant,
        )
        plan = _describe(options, drafter, chosen_policy, rule, target, caches)
        engine = Engine(session, drafter, chosen_policy, rule)
        return Parts(target, engine, tokenizer, plan, stack.pop_all())


def _drafter_name(bundle: Bundle, options: OpenOptions) -> str:
    if options.draft != "auto":
        return options.draft
    return "lookup" if bundle.draft is None else "hybrid"


def _draft_role(bundle: Bundle, drafter_name: str) -> Role:
    if bundle.draft is None:
        raise InputError(
            f"--draft {drafter_name} needs a draft model and {bundle.path} has none: "
            "try --draft lookup, or export the bundle again with --draft"
        )
    return bundle.draft


def _check_vocabularies(target: Model, draft: Model) -> None:
    ours, theirs = target.info.vocab_size, draft.info.vocab_size
    if ours != theirs:
        raise BundleError(
            f"the target has {ours} tokens and the draft {theirs}: export them again as a pair"
        )


def _row_invariant(options: OpenOptions, drafter_name: str) -> bool | None:
    if options.row_invariant is None and drafting.branches(drafter_name):
        return False  # whoever asks for trees and not for invariance gets trees
    return options.row_invariant


def _load(role: Role, options: OpenOptions, stack: ExitStack, row_invariant: bool | None) -> Model:
    chosen = LoadOptions(
        threads=options.threads, providers=options.providers, row_invariant=row_invariant
    )
    model = registry.adapter(registry.RUNTIMES[role.format]).load(role.path, chosen)
    stack.callback(model.close)
    return model


def _open(model: Model, capacity: int, stack: ExitStack) -> Session:
    session = model.open(min(capacity, model.info.max_context))
    stack.callback(session.close)
    return session


def _policy(
    options: OpenOptions, drafter_name: str, target: Session, draft: Session | None
) -> DraftPolicy:
    length = options.draft_length
    if length != "auto" and (not isinstance(length, int) or length < 0):
        raise InputError(f"--draft-length {length}: expected auto or 0 and more")
    if drafter_name == "none":
        return policy.Fixed(0)
    if isinstance(length, int):
        return policy.Fixed(length)
    draft_s = policy.calibrate(draft, widths=(1,)).at(1) if draft else None
    return policy.MeasuredCost(policy.calibrate(target), draft_s)


def _describe(
    options: OpenOptions,
    drafter: Drafter,
    chosen: DraftPolicy,
    rule: AcceptanceRule,
    target: Model,
    caches: CachePlan,
) -> dict[str, Any]:
    """The plan as ``--json`` prints it."""
    length = options.draft_length if chosen.name == "fixed" else "auto"
    return {
        "drafter": drafter.name,
        "draft_length": 0 if drafter.name == "none" else length,
        "policy": chosen.name,
        "accept": rule.name,
        "lossless": rule.lossless,
        "row_invariant": target.capabilities.row_invariant,
        "threads": target.info.threads,
        "provider": next(iter(options.providers), None),
        "max_context": caches.capacity,
        "kv_bytes": caches.kv_bytes,
    }
