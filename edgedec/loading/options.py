"""Options for opening a target and its draft, set by a user or by a plan."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedec._support.amounts import given_bytes
from edgedec._support.model_path import is_gguf
from edgedec._support.option_names import check_names, present_names
from edgedec._support.options import (
    DEVICE,
    DRAFTING,
    Declared,
    check_values,
    declared,
    described,
    option,
    takes,
)
from edgedec.decoding import drafting
from edgedec.decoding.drafting import DRAFT_CONTEXT
from edgedec.errors import InputError
from edgedec.memory.grant import AUTO
from edgedec.records.load import COMMON, LoadOptions
from edgedec.records.plan import OVERLAPPED, SEQUENTIAL, check_schedule
from edgedec.runtimes import registry

if TYPE_CHECKING:
    from edgedec.decoding.acceptance import AcceptanceRule


_FORMER = {
    "row_invariant": "batch_invariant", "draft_model": "draft", "kv_type": "kv",
    "draft_kv_type": "draft_kv",
}  # fmt: skip
# Names on the command line that differ.
_COMMAND_LINE = {"provider": "providers"}
_PLACE = "runtime_options"
# Kinds of options that are sizes.
_SIZES = ("size", "memory")


def as_now(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for opening by their present names, in their present places.

    Raises:
        InputError: an option is given in two ways that differ.

    """
    placed = options.get(_PLACE, {})
    if not isinstance(placed, Mapping):
        raise InputError(f"{_PLACE} is {placed!r:.60}: expected options by name, or leave it out")
    found = {name: value for name, value in options.items() if name != _PLACE} | dict(placed)
    if (spec := found.pop("spec", None)) is not None:
        if (other := found.get("drafter")) not in (None, drafting.AUTO):
            raise InputError(f"spec is {spec!r:.60} and drafter is {other!r:.60}: give one, spec")
        found["drafter"] = drafting.of_spec(spec)
    if names_drafter(found.get("draft")):  # before draft_model, which always names a model
        _move_drafter(found)
    if isinstance(model := found.get("draft_model"), str):
        found["draft_model"] = Path(model)
    return present_names(found, _FORMER | _COMMAND_LINE)


def by_kind(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their present names with sizes in bytes, paths and sequences.

    Raises:
        InputError: what is given is not a size.

    """
    found = dict(options)
    sizes = [name for name, option in registry.options().items() if option.in_bytes]
    own = [one.field for one in declared(OpenOptions).values() if one.option.kind in _SIZES]
    for name in (*own, *sizes, *(f"draft_{size}" for size in sizes)):
        given = found.get(name)
        if given is not None and (name, given) != ("memory", AUTO):
            found[name] = given_bytes(name, given, ", or auto" if name == "memory" else "")
    for name in ("providers", "draft_providers"):
        if isinstance(one := found.get(name), str):
            found[name] = (one,)
    for name in ("draft", "corpus"):
        if isinstance(path := found.get(name), str):
            found[name] = Path(path)
    return found


def names_drafter(draft: object) -> bool:
    """Return whether the value of ``draft`` is a drafter's name, which it was formerly."""
    if not isinstance(draft, str) or "/" in draft or is_gguf(draft):
        return False
    return draft == drafting.AUTO or drafting.known(draft)


def _move_drafter(options: dict[str, Any]) -> None:
    former = options.pop("draft")
    drafter = options.get("drafter", drafting.AUTO)
    if drafter in (None, drafting.AUTO):
        options["drafter"] = former
    elif former not in (drafting.AUTO, drafter):
        raise InputError(
            f"draft is {former!r}, which names a drafter, and drafter is {drafter!r:.60}: give one"
        )


_AS_THE_RUNTIME_CHOOSES = LoadOptions()
# Begins the name of a load option for the draft alone.
_FOR_DRAFT = "draft_"
_OWN_CONTEXT = f"leave it out for {DRAFT_CONTEXT}, or give a number of tokens"


@described
@dataclass(frozen=True, slots=True, init=False)
class OpenOptions:
    """Options for opening a pipeline.

    Attributes:
        load: load options of the target, and of the draft unless it has its own.
        draft_load: load options of the draft; None is those of the target.

    Load options are also given by name, ``threads=2``, ``kv="q8_0"`` or any other that
    ``LoadOptions`` has or a runtime declares; ``draft_`` in front gives one to the draft alone, as
    ``draft_device="cpu"``. They change ``load`` and ``draft_load``. ``provider="NAME"`` is one of
    ``providers``, or several, as on the command line.

    ``batch_invariant=True`` keeps drafters from branching; where no padding of passes achieves it,
    opening fails. None takes it where it costs little, as ``--batch-invariant`` does (docs/cli.md
    and ``help(Pipeline.open)`` say where). Without it, quantised weights round differently in
    passes of different widths: where two tokens are nearly tied, speculative decoding may diverge
    from plain decoding, and two runs of one seed from each other, since draft lengths follow
    measured time. Each token is still drawn from the target's distribution.

    """

    load: LoadOptions = _AS_THE_RUNTIME_CHOOSES
    draft_load: LoadOptions | None = None
    # fmt: off
    drafter: str = option(
        "auto", "Way of drafting: {drafters}; default: auto, which is headed if the target has a"
        " head, else hybrid if there is a draft model, else text; none is plain decoding.",
        text="a drafter's name; ``auto`` is ``headed`` with a head, ``hybrid`` with a draft model,"
        " else ``text``; ``none`` is plain decoding.", group=DRAFTING, kind="drafter", planned=True,
        metavar="NAME",
    )
    spec: str | None = option(
        None, "Stages of drafting in order, each a drafter with its keys: lookup:n=8,head:k=4; k is"
        " the most tokens that a stage drafts in a round. In place of --drafter.",
        text="stages of drafting in order, each a drafter with its keys, as"
        " ``lookup:n=8,head:k=4``, in place of ``drafter``, which it becomes; ``k`` is the most"
        " tokens that a stage drafts in a round, and a drafter may have others.",
        group=DRAFTING, kind="spec", planned=True, metavar="STAGES",
    )
    draft: Path | None = option(
        None, "Draft model, given like MODEL: a smaller one of the same family; of a bundle its"
        " target drafts. Default: the draft that comes with MODEL.", group=DRAFTING, kind="draft",
        metavar="MODEL", takes="str | Path | None",
    )
    draft_length: int | str = option(
        "auto", "Tokens to draft per round; auto decides by measured cost.", group=DRAFTING,
        kind="draft_length", planned=True, metavar="auto|N", shows=True,
    )
    corpus: Path | None = option(
        None, "Texts like those to come, from which drafts are copied too: a text file, or a .jsonl"
        " file of texts or objects with text or messages.", group=DRAFTING, kind="file",
        metavar="FILE", takes="str | Path | None",
    )
    accept: str | None = option(
        None, "Acceptance rule: coupling (default) and match give a seed's own text (match up to"
        " near-ties, see --batch-invariant), speculative its distribution; bild changes both.",
        group=DRAFTING, metavar="RULE",
    )
    draft_depth: int | None = option(
        None, text="longest path of a drafted tree of a fixed length; None is that length.",
        group=DRAFTING,
    )
    schedule: str = option(
        SEQUENTIAL, text="``sequential``, or ``overlapped``: to draft while the target verifies.",
        group=DRAFTING, planned=True,
    )
    max_context: int | None = option(
        None, "Most tokens of prompt and output; default: the model's limit.", group=DEVICE,
        metavar="TOKENS", kind="context",
    )
    context_limit: int | None = option(
        None, text="like ``max_context``, but set by a plan.", group=DEVICE,
    )
    draft_context: int | None = option(
        DRAFT_CONTEXT, "Context window of the draft model; of a longer text it sees the first four"
        " tokens and the last ones.", text="size of the draft model's context window in tokens; of"
        " a longer text it sees the first four tokens and the last ones, which is faster and may"
        " predict as well. None is the draft model's own limit, or the target's context.",
        group=DRAFTING, kind="draft_context", metavar="TOKENS", shows=True,
    )
    kv_memory: int | None = option(
        None, "Memory for all key/value caches, such as 512MB; default: no limit.", group=DEVICE,
        kind="size", metavar="SIZE", takes="int | str | None",
    )
    plan: str | Path = option(
        "auto", "Plan to follow: auto is the last one that `edgedec plan` made for these models on"
        " this machine; or a file that it wrote.", text="which plan of ``edgedec plan`` to follow:"
        " ``none``, a file that it wrote, or ``auto`` for the last one. With ``auto``, no plan is"
        " followed if an option that plans decide is set; without a plan, the target runs on the"
        " device that computes its rounds fastest, unless an option places it.", group=DEVICE,
        metavar="auto|none|FILE", shows=True,
    )
    memory: int | str | None = option(
        None, "Limit on the memory of the process, such as 2GB, or auto for what is free. Follows a"
        " plan that fits if there is one; where the weights do not fit, measures once how many of"
        " them to keep in memory.", text='most bytes that the process may hold, also as ``"2GB"``,'
        " or ``auto`` for what it holds and what is free, less a margin. Unless ``plan`` is"
        " ``none``, a plan that fits is made, after measuring the models if needed; the limit is"
        " enforced while decoding. None sets no limit.", group=DEVICE, kind="memory",
        metavar="auto|SIZE",
    )
    format: str = option(
        "auto", "Format of the model files; auto takes the fastest one that can run here. onnx"
        " makes a GGUF file into a bundle in the library first, once.", group=DEVICE, kind="format",
        planned=True, shows=True,
    )
    draft_format: str | None = option(
        None, text="of the draft's files if it differs from the target's.", group=DEVICE,
    )
    conversations: int = option(
        1, text="most sequences that the target keeps cached, each in a session of its own: a"
        " prompt that continues one of them, or shares its prefix, computes only its new tokens."
        " The least recently used one is replaced. A target with streamed weights keeps one.",
        group=DEVICE, least=1,
    )
    parallel: int = option(
        1, text="requests that may be decoded by turns, round by round, each with caches of its"
        " own; then there are at least as many ``conversations``, and drafts are not overlapped"
        " with the target's passes.", group=DEVICE, least=1,
    )
    # fmt: on

    def __init__(self, **options: Any) -> None:
        options = as_now(options)
        check_names(options, self.names())
        options = by_kind(options)
        for field in dataclasses.fields(OpenOptions):
            object.__setattr__(self, field.name, options.pop(field.name, field.default))
        for_draft = {name: options.pop(name) for name in [*options] if name.startswith(_FOR_DRAFT)}
        self._check()
        if options:
            object.__setattr__(self, "load", _checked(self.load, options))
        if for_draft:
            own = {name.removeprefix(_FOR_DRAFT): value for name, value in for_draft.items()}
            try:
                load = _checked(self.draft_load or self.shared(), own)
            except InputError as error:  # begins with the option's name
                raise InputError(f"{_FOR_DRAFT}{error}") from None
            object.__setattr__(self, "draft_load", load)

    @staticmethod
    def names() -> list[str]:
        """Return the names of all options: fields, load options, and those for the draft alone."""
        load = [*COMMON, *registry.options()]
        own = [field.name for field in dataclasses.fields(OpenOptions)]
        return [*own, *load, *(_FOR_DRAFT + name for name in load)]

    def changed(self, **changes: Any) -> OpenOptions:
        """Return a copy with some options changed.

        Raises:
            TypeError: no option has a name that was given.
            InputError: a value is out of range.

        """
        changes = as_now(changes)  # a drafter given as draft leaves the draft model
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return OpenOptions(**fields | changes) if changes else self

    def chosen(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, by name, load options among them."""
        own = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "load" and getattr(self, field.name) != field.default
        }
        load = {name: getattr(self.load, name) for name in COMMON} | self.load.own
        return own | {name: value for name, value in load.items() if value not in (None, ())}

    def planned(self) -> dict[str, Any]:
        """Return the options that were set and that a plan decides, by name."""
        own = [*declared(OpenOptions).values(), *declared(LoadOptions).values()]
        planned = {*_planned(), "draft_load", *(one.field for one in own if one.option.planned)}
        return {name: value for name, value in self.chosen().items() if name in planned}

    def is_placed(self) -> bool:
        """Return whether it was chosen where the target runs, or in how much memory."""
        places = self.load.device or self.load.providers or self.load.cores
        return bool(places) or self.memory is not None or not _planned().isdisjoint(self.load.own)

    def _check(self) -> None:
        for name, load in (("load", self.load), ("draft_load", self.draft_load)):
            if not isinstance(load, LoadOptions) and (name, load) != ("draft_load", None):
                raise InputError(f"{name} is {load!r:.60}: expected LoadOptions")
        if str(self.draft_context) == AUTO:
            raise InputError(f"draft_context auto was removed: {_OWN_CONTEXT}")
        check_values(self)
        length = self.draft_length
        if length != "auto" and (not isinstance(length, int) or length < 0):
            raise InputError(f"draft_length is {length!r:.60}: expected auto or 0 and more")
        if not isinstance(self.drafter, str):
            raise InputError(f"drafter is {self.drafter!r:.60}: expected a drafter's name, or auto")
        for name in ("draft", "plan", "corpus"):
            path = getattr(self, name)
            if path is not None and not isinstance(path, (str, os.PathLike)):
                raise InputError(f"{name} is {path!r:.60}: expected a path")
        check_schedule(self.schedule)
        if self.parallel > 1 and self.schedule == OVERLAPPED:
            raise InputError(
                f"parallel is {self.parallel}: expected 1 with the schedule {OVERLAPPED}, whose"
                " draft computes while the target does"
            )

    @property
    def caches(self) -> int:
        """Most caches that the target has."""
        return max(self.conversations, self.parallel)

    def batch_invariance(self, drafter: str, rule: AcceptanceRule) -> bool | None:
        """Return the target's load option ``batch_invariant`` for this drafter and rule.

        Unless it is given, it is False for drafters that branch and for rules whose sampled text
        depends on the drafts. It is fixed when the target is opened, before any request is known to
        be greedy, since later requests reuse rows that earlier ones computed.
        """
        asked = self.load.batch_invariant
        if asked is None and (drafting.info(drafter).needs_branches or not rule.seeds_text):
            return False
        return asked

    def of_target(self, drafter: str, rule: AcceptanceRule) -> LoadOptions:
        invariant = self.batch_invariance(drafter, rule)
        return self.load.changed(batch_invariant=invariant, may_pad=rule.pads)

    def of_draft(self) -> LoadOptions:
        """Return the draft's load options; never batch-invariant, which only the text needs."""
        of_target = [name for name, option in registry.options().items() if option.target_only]
        draft = self.draft_load or self.shared()
        return draft.changed(batch_invariant=False, **dict.fromkeys(of_target))

    def shared(self) -> LoadOptions:
        """Return those of the target's load options that apply to the draft as well."""
        places = {place for info in registry.infos().values() for place in info.target_places}
        return self.load.changed(
            batch_invariant=None,
            device=None if self.load.device in places else self.load.device,
            providers=tuple(name for name in self.load.providers if name not in places),
        )

    @property
    def given_for_draft(self) -> list[str]:
        """Names of the device and runtime options that were given for the draft alone."""
        if self.draft_load is None:
            return []
        own, shared = self.draft_load.own, self.load.own
        names = [name for name, value in own.items() if shared.get(name) != value]
        return names if self.draft_load.device == self.load.device else ["device", *names]


def _planned() -> set[str]:
    return {name for name, option in registry.options().items() if option.planned}


def _checked(load: LoadOptions, changes: dict[str, Any]) -> LoadOptions:
    """Return load options with some changed, after checking the values that runtimes declare."""
    for name, value in changes.items():
        if name in registry.options() and value is not None:
            registry.options()[name].check(value)
    return load.changed(**changes)


def _openings() -> dict[str, Declared]:
    """Return all options for opening by name: of a pipeline, of loading, of the draft alone."""
    own = {one.name: one.declared for one in registry.built_in_options()}
    load = declared(LoadOptions) | own
    return (
        declared(OpenOptions)
        | load
        | {f"{_FOR_DRAFT}{one.field}": _of_draft(one) for one in load.values()}
    )


def _of_draft(one: Declared) -> Declared:
    """Return a load option for the draft alone."""
    said = "the option without ``draft_``, for the draft alone"
    about = replace(one.option, name="", short="", help=one.option.draft_help, text=said)
    name = f"{_FOR_DRAFT}{one.field}"
    return replace(one, name=name, field=name, option=about)


OPENINGS = _openings()
# For functions that take these options.
takes_open_options = takes(OPENINGS)
takes_open_options(OpenOptions.__init__)
