"""Loads a pair of models, opens their sessions and builds an engine over them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from edgedec._support.fields import one_line
from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.drafting._earlier import EarlierTexts
from edgedec.decoding.drafting.base import PREFILL_AT_ONCE, DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.prefill import TURN
from edgedec.decoding.session import HeadModel, HeadSession, Model, Session
from edgedec.decoding.translation import Translation
from edgedec.errors import BundleError, InputError
from edgedec.hardware.clock import Clock, WallClock
from edgedec.hardware.resident import keep_heap_small
from edgedec.loading.drafters import drafter_for, drafter_name
from edgedec.loading.earlier import earlier_texts
from edgedec.loading.engine import build_engine, parallel_engine
from edgedec.loading.in_use import FilesInUse
from edgedec.loading.open_pair import OpenPair
from edgedec.loading.options import OpenOptions
from edgedec.loading.sessions import Meter, open_sessions
from edgedec.loading.sources import Models, Pair, Source
from edgedec.loading.unloading import UnloadableModel
from edgedec.memory.budget import MEMORY, TRAINED, CachePlan, check_context
from edgedec.records.load import LoadOptions
from edgedec.records.place import Place, remote_device
from edgedec.records.plan import SEQUENTIAL, Plan
from edgedec.runtimes import registry
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.vocabulary_map import translate

_log = logging.getLogger("edgedec")
# Share of the target's tokens below which a draft is a poor one.
_FEW_IN_COMMON = 0.5
T = TypeVar("T")

__all__ = ["OpenOptions", "OpenPair", "assemble", "find_pair", "pair_of"]


class Loader:
    """Loads what a pair needs, and closes it with the pair; a trial's lets pairs share it."""

    clock: Clock = WallClock()

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return what ``make`` returns, or returned before for an equal key."""
        return make()

    def load(self, source: Source, options: LoadOptions, for_draft: Sequence[str] = ()) -> Model:
        return source.load(options, for_draft)

    def close(self, model: Model) -> None:
        """Close a model that was loaded."""
        model.close()

    def policy(self, plan: Plan) -> DraftPolicy | None:
        """Return the policy to decode with; None measures the pass times that it needs."""
        return None


def assemble(models: Models, options: OpenOptions, loader: Loader | None = None) -> OpenPair:
    """Load the models and build the engine; a step that fails closes what was opened before.

    Raises:
        BundleError, RuntimeUnavailable, MemoryBudgetError, InputError.
    """
    loader, rule = loader or Loader(), acceptance.rule(options.accept or "coupling")
    pair = pair_of(models, options)
    _prepare(pair, options)
    drafter = drafter_name(pair, options)
    meter = Meter(counting=options.memory is not None)
    with ExitStack() as stack:
        in_use = _in_use(pair, stack)
        tokenizer = loader.once(("tokenizer", pair.target.path), pair.target.read_tokenizer)
        meter.mark("tokenizer")
        target = loader.load(pair.target, options.of_target(drafter, rule))
        stack.callback(loader.close, target)
        options = _within(options, pair.target, target)
        _check_turns(target, options)
        _show_states(pair, target, drafter)
        drafter, left_out = drafter_for(pair, target, drafter, options)
        meter.mark("target")
        draft = _load_draft(pair, target, drafter, options, loader, stack)
        head = _load_head(pair, target, drafter, options, loader, stack)
        helper = head or draft
        meter.mark("draft")
        translation = _translation(pair, tokenizer, target, draft, loader)
        meter.mark("tokenizer")
        plan = _plan(pair, drafter, options)
        opened = open_sessions(target, helper, plan, options, meter, stack)
        earlier = earlier_texts(drafter, tokenizer, options)
        parts = _drafter_parts(pair, target, draft, translation, earlier, options)
        meter.mark("engine")
        more = [_another(helper, opened.draft, stack) for _ in range(1, options.parallel)]
        meter.skip()  # counted with the draft's costs
        every = [_with_session(parts, head, session) for session in (opened.draft, *more)]
        engine = build_engine(
            plan, opened.target, every[0], loader.clock, policy=loader.policy(plan), rule=rule
        )
        stack.callback(engine.drafter.close)
        engine.pool.limit = engine.pool.limit if target.capabilities.phases else options.caches
        others = _parallel_engines(engine, plan, every[1:], stack)
        stack.callback(engine.pool.close)
        facts = _describe(options, engine, target, opened.caches)
        facts |= {"format": pair.target.format, **(translation.facts if translation else {})}
        guard = opened.guard(options, [engine, *others], helper, left_out)
        return OpenPair(
            pair, target, engine, tokenizer, facts, stack.pop_all(),
            _bound(opened.caches, target), guard, others, in_use=in_use, earlier=earlier,
        )  # fmt: skip


def _in_use(pair: Pair, stack: ExitStack) -> FilesInUse:
    sources = [one for one in (pair.target, pair.draft, pair.head) if one is not None]
    found = FilesInUse(dict.fromkeys(file for one in sources for file in one.files.values()))
    stack.callback(found.close)
    return found


def _prepare(pair: Pair, options: OpenOptions) -> None:
    if pair.target.max_context is not None:
        check_context(options.max_context, pair.target.max_context, "the target")
    if options.memory is not None:
        keep_heap_small()


def find_pair(where: str | Path, options: OpenOptions) -> Pair:
    """Find the models that ``Pipeline.open`` would load with these options.

    Raises:
        BundleError, InputError.
    """
    return pair_of(Models.find(where, options.draft), options)


def pair_of(models: Models, options: OpenOptions) -> Pair:
    """Return the models in the formats that the options select."""
    return models.pair(partial(_format, options))


def _plan(pair: Pair, drafter: str, options: OpenOptions) -> Plan:
    """Return the plan that the options ask for, with the drafter that was chosen."""
    length, draft = options.draft_length, None
    if pair.draft is not None and drafting.info(drafter).needs_model:
        draft = Place.of(pair.draft.format, options.of_draft())
    return Plan(
        Place.of(pair.target.format, options.load),
        draft,
        drafter,
        length if isinstance(length, int) else None,
        options.draft_depth,
        options.schedule,
    )


def _check_turns(target: Model, options: OpenOptions) -> None:
    if not target.capabilities.verifies:
        raise BundleError(
            f"{target.info.name}: its graph computes rows of one pass otherwise than single ones,"
            " so it cannot verify drafts: use it as --draft, choose another of its files, or"
            " export the model from its original checkpoint"
        )
    if target.capabilities.phases and options.parallel > 1:
        raise InputError("parallel: a target with streamed weights decodes one request at a time")


def _drafter_parts(
    pair: Pair,
    target: Model,
    draft: Model | None,
    translation: Translation | None,
    earlier: EarlierTexts | None,
    options: OpenOptions,
) -> DrafterParts:
    return DrafterParts(
        target.info.vocab_size,
        branches=target.capabilities.drafted_branches,
        rejected=target.capabilities.rejected,
        translation=translation,
        earlier=earlier,
        draft_branches=draft.capabilities.branches if draft else None,
        mask=pair.draft.mask if pair.draft else None,
        # With parallel requests, others wait while a draft model prefills.
        prefill_at_once=TURN if options.parallel > 1 else PREFILL_AT_ONCE,
    )


def _within(options: OpenOptions, source: Source, target: Model) -> OpenOptions:
    """Return the options with ``max_context`` limited to what the loaded target supports."""
    if options.max_context is None or source.max_context is None:
        return options
    return dataclasses.replace(
        options, max_context=min(options.max_context, target.info.max_context)
    )


def _with_session(
    parts: DrafterParts, head: HeadModel | None, session: Session | None
) -> DrafterParts:
    """Return the parts with a session of what drafts."""
    if head is None:
        return dataclasses.replace(parts, draft=session)
    assert isinstance(session, HeadSession), "a head opens sessions that carry"
    return dataclasses.replace(parts, head=head, head_session=session)


def _parallel_engines(
    engine: Engine, plan: Plan, parts: Sequence[DrafterParts], stack: ExitStack
) -> list[Engine]:
    """Return engines that take turns with this one, each with parts of its own."""
    others = []
    for own in parts:
        others.append(parallel_engine(engine, plan, own))
        stack.callback(others[-1].drafter.close)
    return others


def _another(model: Model | None, session: Session | None, stack: ExitStack) -> Session | None:
    """Open another session of the same capacity; None without a model."""
    if model is None or session is None:
        return None
    another = model.open(session.capacity)
    stack.callback(another.close)
    return another


def _bound(caches: CachePlan, target: Model) -> str:
    """Return which limit bounds the context; a plan's limit counts as a memory limit."""
    limited = caches.bound == TRAINED and caches.capacity < target.info.max_context
    return MEMORY if limited else caches.bound


def _format(options: OpenOptions, role: str, formats: Sequence[str]) -> str:
    """Return the format to use; ``auto`` skips those whose runtime is not installed.

    A draft from another path may have other formats than the target.
    """
    wanted = options.format
    if role == "draft" and options.draft_format is not None:
        wanted = options.draft_format
    if wanted != "auto" and (role == "target" or wanted in formats):
        return wanted
    known = [format for format in registry.formats() if format in formats]
    if not known:
        there = one_line(", ".join(formats)) or "none for both models"
        expected = ", ".join(registry.formats())
        raise BundleError(f"the bundle's formats: {there}; expected one of {expected}")
    usable = [one for one in known if registry.installed(registry.of_format(one).name)]
    return (usable or known)[0]


def _load_draft(
    pair: Pair,
    target: Model,
    drafter: str,
    options: OpenOptions,
    loader: Loader,
    stack: ExitStack,
) -> Model | None:
    if not drafting.info(drafter).needs_model:
        return None
    if pair.draft is None:
        raise InputError(
            f"--drafter {drafter} needs a draft model and {pair.where} has none: "
            "give one with --draft FILE.gguf, or try --drafter lookup"
        )
    load = partial(loader.load, pair.draft, options.of_draft(), options.given_for_draft)
    # An overlapped draft model may be computing when its memory is needed.
    unloads = options.memory is not None and options.schedule == SEQUENTIAL
    draft: Model = UnloadableModel(load) if unloads else load()
    stack.callback(loader.close, draft)
    _check_sizes(target, draft)
    return draft


def _show_states(pair: Pair, target: Model, drafter: str) -> None:
    """Make the target show what its head reads, if the drafter needs that."""
    if drafting.info(drafter).needs_head:
        from edgedec.loading.heads import show_states

        show_states(pair, target)


def _load_head(
    pair: Pair,
    target: Model,
    drafter: str,
    options: OpenOptions,
    loader: Loader,
    stack: ExitStack,
) -> HeadModel | None:
    """Load the target's head if the drafter needs it."""
    if not drafting.info(drafter).needs_head:
        return None
    from edgedec.loading.heads import load_head

    head = load_head(pair, target, options, loader.load)
    stack.callback(loader.close, head)
    return head


def _check_sizes(target: Model, draft: Model) -> None:
    if draft.info.weight_bytes > target.info.weight_bytes:
        raise InputError(
            f"the draft ({draft.info.name}, {draft.info.weight_bytes / 1e6:.1f} MB) is larger than"
            f" the target ({target.info.name}, {target.info.weight_bytes / 1e6:.1f} MB): swap"
            " them, or decode with --drafter lookup"
        )


def _translation(
    pair: Pair, tokenizer: Tokenizer, target: Model, draft: Model | None, loader: Loader
) -> Translation | None:
    """Return the translation between the vocabularies; None if they are known to be equal."""
    source = pair.draft
    if source is None or draft is None:
        return None
    columns = target.info.vocab_size, draft.info.vocab_size
    if pair.shared_tokenizer and columns[0] == columns[1]:
        return None

    def made() -> Translation:
        found = translate(
            tokenizer, source.read_tokenizer(), target_columns=columns[0], draft_columns=columns[1]
        )
        _note_few_in_common(found.facts)
        return found

    return loader.once(("translation", pair.target.path, source.path), made)


def _note_few_in_common(facts: Mapping[str, Any]) -> None:
    """Warn of a draft that knows less than half of the target's tokens."""
    if facts.get("shared_of_target", 1.0) < _FEW_IN_COMMON:
        _log.warning(
            "the draft has a tokenizer of its own, with %.0f%% of the target's tokens and %.0f%% of"
            " those of a sample text: it drafts what both can write, and less is accepted than from"
            " a draft with the target's tokenizer",
            100 * facts["shared_of_target"],
            100 * facts["shared_of_sample"],
        )


def _describe(
    options: OpenOptions, engine: Engine, target: Model, caches: CachePlan
) -> dict[str, Any]:
    """Return the facts that ``--json`` prints as the plan."""
    length = options.draft_length if engine.policy.name == "fixed" else "auto"
    return {
        "drafter": engine.drafter.name,
        "draft_length": 0 if engine.drafter.name == PLAIN else length,
        "policy": engine.policy.name,
        "schedule": options.schedule,
        "accept": engine.rule.name,
        "lossless": engine.rule.lossless,
        "batch_invariant": target.capabilities.batch_invariant,
        "row_invariant": target.capabilities.batch_invariant,  # its former name, for scripts
        "kv": options.load.own.get("kv"),
        "threads": target.info.threads,
        "cores": options.load.cores,
        "provider": next(iter(options.load.providers), None),
        "device": options.load.device or remote_device(options.load),
        "max_context": caches.capacity,
        "kv_bytes": caches.kv_bytes,
    }
