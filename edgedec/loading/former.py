"""Options for opening as they may be given: names and values of the command line, former names.

Former names and places are accepted for a release.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgedec._support.amounts import given_bytes
from edgedec._support.model_path import is_gguf
from edgedec._support.option_names import present_names
from edgedec.decoding import drafting
from edgedec.errors import InputError
from edgedec.memory.grant import AUTO
from edgedec.runtimes import registry

_FORMER = {
    "row_invariant": "batch_invariant", "draft_model": "draft", "kv_type": "kv",
    "draft_kv_type": "draft_kv",
}  # fmt: skip
# Names on the command line that differ.
_COMMAND_LINE = {"provider": "providers"}
OTHER_NAMES = (*_FORMER, *_COMMAND_LINE)
_PLACE = "runtime_options"


def as_now(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for opening by their present names, in their present places.

    Raises:
        InputError: an option is given in two ways that differ.

    """
    placed = options.get(_PLACE, {})
    if not isinstance(placed, Mapping):
        raise InputError(f"{_PLACE} is {placed!r:.60}: expected options by name, or leave it out")
    found = {name: value for name, value in options.items() if name != _PLACE} | dict(placed)
    if names_drafter(found.get("draft")):  # before draft_model, which always names a model
        _move_drafter(found)
    if isinstance(model := found.get("draft_model"), str):
        found["draft_model"] = Path(model)
    return present_names(found, _FORMER | _COMMAND_LINE)


def values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by their present names with sizes in bytes, paths and sequences.

    Raises:
        InputError: what is given is not a size.

    """
    found = dict(options)
    sizes = [name for name, option in registry.options().items() if option.in_bytes]
    for name in ("memory", "kv_memory", *sizes, *(f"draft_{size}" for size in sizes)):
        given = found.get(name)
        if given is not None and (name, given) != ("memory", AUTO):
            found[name] = given_bytes(name, given, ", or auto" if name == "memory" else "")
    for name in ("providers", "draft_providers"):
        if isinstance(one := found.get(name), str):
            found[name] = (one,)
    if isinstance(draft := found.get("draft"), str):
        found["draft"] = Path(draft)
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
