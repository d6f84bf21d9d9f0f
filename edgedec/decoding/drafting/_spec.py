"""Several drafters in one text: stages with their keys, as ``lookup:n=8,head:k=4``.

A comma separates stages, which are tried in this order, and further keys of a stage. Any drafter
is a stage, those of packages as well; one that is made of others stands alone.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from edgedec.decoding.drafting._composite import CompositeDrafter
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts, Key
from edgedec.errors import InputError

# The key of every stage: the most tokens that it drafts in a round.
MOST = Key("k", "most tokens that it drafts in a round; fewer where that costs less", 1, 64)
_LONGEST = 400
_WHOLE = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class Stage:
    """A drafter and what it is built with.

    Attributes:
        keys: values by name; see ``DrafterInfo.keys``.

    """

    name: str
    keys: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        keys = ",".join(f"{name}={value}" for name, value in self.keys.items())
        return f"{self.name}:{keys}" if keys else self.name


@dataclass(frozen=True, slots=True)
class Registry:
    """The drafters there are, by the functions of ``drafting``; ``plain`` drafts nothing."""

    names: Callable[[], list[str]]
    info: Callable[[str], DrafterInfo]
    no_drafter: Callable[[str, str], str]
    create: Callable[[str, DrafterParts], Drafter]
    plain: str


def parse(text: object, registry: Registry) -> tuple[Stage, ...]:
    """Return the stages of a text.

    Raises:
        InputError: says in one line what is wrong, and what was expected.

    """
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
        raise InputError(f"spec is {text!r:.60}: expected stages such as lookup:n=8,head:k=4")
    stages: list[Stage] = []
    for piece in text.split(","):
        name, colon, first = piece.strip().partition(":")
        if colon or "=" not in name:
            stages.append(Stage(_drafter(text, name.strip(), registry)))
            if colon:
                _add(text, stages[-1], first, registry)
        elif stages:
            _add(text, stages[-1], name, registry)
        else:
            raise InputError(f"spec {text!r}: {name!r} is before any stage: begin with its name")
    _check(text, stages, registry)
    return tuple(stages)


def _drafter(text: str, name: str, registry: Registry) -> str:
    names = registry.names()
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1)
    meant = f"did you mean {near[0]}?" if near else ""
    raise InputError(f"spec {text!r:.80}: {registry.no_drafter(name, meant)}")


def _add(text: str, stage: Stage, given: str, registry: Registry) -> None:
    """Add a key to a stage, after checking it."""
    where = f"spec {text!r:.80}: {stage.name}"
    known = {one.name: one for one in (MOST, *registry.info(stage.name).keys)}
    name, equals, value = (part.strip() for part in given.partition("="))
    if not equals:
        raise InputError(f"{where}: expected KEY=NUMBER, such as k=4, got {given!r:.40}")
    if name not in known:
        described = "; ".join(f"{one.name}: {one.help}" for one in known.values())
        raise InputError(f"{where} has no key {name!r:.40}: it has {described}")
    if name in stage.keys:
        raise InputError(f"{where}: {name} is given twice: leave one out")
    key = known[name]
    if not _WHOLE.fullmatch(value) or not key.least <= int(value) <= key.most:
        expected = f"a whole number, {key.least} to {key.most}"
        raise InputError(f"{where}: {name} is {value!r:.40}: expected {expected}")
    stage.keys[name] = int(value)


def _check(text: str, stages: Sequence[Stage], registry: Registry) -> None:
    """Refuse stages that do not go together."""
    names = [stage.name for stage in stages]
    where = f"spec {text!r:.80}"
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{where}: {twice} is there twice: leave one out")
    infos = {name: registry.info(name) for name in names}
    for name, info in infos.items():
        if len(names) > 1 and (info.parts or name == registry.plain):
            what = f"is made of {', '.join(info.parts)}" if info.parts else "drafts nothing"
            raise InputError(f"{where}: {name} {what}: give it alone, or other stages")
    weighty = [name for name, info in infos.items() if info.needs_weights]
    if len(weighty) > 1:
        raise InputError(
            f"{where}: {' and '.join(weighty)} each take a draft model or a head, and one is"
            " loaded: leave one out"
        )


def written(stages: Sequence[Stage]) -> str:
    """Return stages as a text."""
    return ",".join(map(str, stages))


def info_of(stages: Sequence[Stage], registry: Registry) -> DrafterInfo:
    """Return the facts about stages together."""
    infos = [registry.info(stage.name) for stage in stages]
    return DrafterInfo(
        needs_model=any(info.needs_model for info in infos),
        branches=any(info.branches for info in infos),
        needs_branches=any(info.needs_branches for info in infos),
        needs_head=any(info.needs_head for info in infos),
        needs_mask=any(info.needs_mask for info in infos),
        by_text=any(info.by_text for info in infos),
        parts=tuple(stage.name for stage in stages),
        planned=False,
        lengths=(),
    )


def build(name: str, stages: Sequence[Stage], parts: DrafterParts, registry: Registry) -> Drafter:
    """Return the drafter that tries stages in order; see ``drafting.create``."""
    arms = []
    for place, stage in enumerate(stages, 1):
        rivals = [*(other.name for other in stages[place:]), *parts.rivals]
        own = {key: value for key, value in stage.keys.items() if key != MOST.name}
        arms.append(registry.create(stage.name, replace(parts, rivals=rivals, keys=own)))
    learners = (
        arm for arm, one in zip(arms, stages, strict=True) if registry.info(one.name).learns
    )
    most = {one.name: one.keys[MOST.name] for one in stages if MOST.name in one.keys}
    return CompositeDrafter(name, arms, next(learners, None), most)
