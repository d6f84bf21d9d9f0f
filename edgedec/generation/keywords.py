"""Options given by name, as in ``generate("x", max_new_tokens=10, temperature=0.8)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from edgedec._support.option_names import check_names, present_names
from edgedec._support.options import declared, takes
from edgedec.decoding.params import SamplingParams
from edgedec.generation.options import FORMER, GenerateOptions
from edgedec.loading.options import OpenOptions

_OWN = declared(GenerateOptions)
# All of them by name, those for sampling after the length.
TEXTS = {"max_new_tokens": _OWN["max_new_tokens"]} | declared(SamplingParams) | _OWN
# As the fields are called, and all of those for sampling together.
UNLISTED = ("timeout_s", "sampling")
# For functions that take them.
takes_text_options = takes(TEXTS)


def with_changes(options: GenerateOptions, changes: Mapping[str, Any]) -> GenerateOptions:
    """Return options with some changed by name, including those of ``options.sampling``.

    Raises:
        TypeError: ``options`` is something else, or no option has a name that was given.
        InputError: a value is out of range, or given by a former name and another by the present.

    """
    if not isinstance(getattr(options, "sampling", None), SamplingParams):
        raise TypeError(
            f"options is {options!r:.60}: expected GenerateOptions, or single options by name, as"
            " max_new_tokens=10"
        )
    if not changes:
        return options
    changes = present_names(changes, FORMER)
    drawn = _names(options.sampling)
    own = _names(options)
    known = [*TEXTS, *UNLISTED]
    _check_place(changes, known, OpenOptions.names(), "Pipeline.open")
    check_names(changes, known)
    changed = {name: value for name, value in changes.items() if name in own}
    sampling = {name: value for name, value in changes.items() if name in drawn}
    if isinstance(bias := sampling.get("logit_bias"), Mapping):
        sampling["logit_bias"] = dict(bias)
    chosen = changed.get("sampling", options.sampling)
    if sampling and isinstance(chosen, SamplingParams):
        changed["sampling"] = dataclasses.replace(chosen, **sampling)
    return dataclasses.replace(options, **changed)


def check_opens(changes: Mapping[str, Any]) -> None:
    """Raise TypeError for options of a text that are given for opening."""
    _check_place(changes, OpenOptions.names(), [*TEXTS, *UNLISTED], "generate or stream")


def _check_place(
    given: Mapping[str, Any], own: Collection[str], others: Collection[str], place: str
) -> None:
    for name in given:
        if name not in own and name in others:
            raise TypeError(f"unknown option {name!r}: give it to {place}")


def _names(options: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]
