"""Options given by name, as in ``generate("x", max_new_tokens=10, temperature=0.8)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from edgedec._support.option_names import check_names, present_names
from edgedec.decoding.sampling import SamplingParams
from edgedec.generation.options import FORMER, GenerateOptions


class TextOptions(TypedDict, total=False):
    """The fields of ``GenerateOptions`` and of its ``SamplingParams``, by name."""

    max_new_tokens: int
    sampling: SamplingParams
    stop: str | Sequence[str]
    logprobs: int | None
    timeout_s: float | None
    ignore_eos: bool
    drafter: str | None
    draft_length: int | None
    json_mode: bool
    json_schema: str | bool | Mapping[str, Any] | None
    regex: str | None
    grammar: str | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None


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
    check_names(changes, own + drawn)
    changed = {name: value for name, value in changes.items() if name in own}
    sampling = {name: value for name, value in changes.items() if name in drawn}
    if isinstance(bias := sampling.get("logit_bias"), Mapping):
        sampling["logit_bias"] = dict(bias)
    chosen = changed.get("sampling", options.sampling)
    if sampling and isinstance(chosen, SamplingParams):
        changed["sampling"] = dataclasses.replace(chosen, **sampling)
    return dataclasses.replace(options, **changed)


def _names(options: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]
