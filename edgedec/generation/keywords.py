"""Options given by name, as in ``generate("x", max_new_tokens=10, temperature=0.8)``."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from edgedec._support.option_names import check_names, present_names
from edgedec._support.signatures import defaults_of, lists, texts_of
from edgedec.decoding.sampling import SamplingParams
from edgedec.generation.options import FORMER, GenerateOptions
from edgedec.loading.options import OpenChanges, OpenOptions


class TextOptions(TypedDict, total=False):
    """The fields of ``GenerateOptions`` and of its ``SamplingParams``, by name."""

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None
    stop: str | Sequence[str]
    timeout: float | None
    logprobs: int | None
    json_mode: bool
    json_schema: str | Path | bool | Mapping[str, Any] | None
    regex: str | None
    grammar: str | Path | None
    think: bool | None
    think_tokens: int | None
    reasoning_effort: str | None
    shown_tokens: tuple[str, ...]
    drafter: str | None
    draft_length: int | None
    ignore_eos: bool
    # As the fields are called, and all of those for sampling together.
    timeout_s: float | None
    sampling: SamplingParams


GROUPS = {
    "Length and end": ("max_new_tokens", "stop", "timeout", "ignore_eos"),
    "Sampling": ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
                 "frequency_penalty", "logit_bias", "seed"),
    "Form": ("json_mode", "json_schema", "regex", "grammar"),
    "Thinking, of answers to messages": ("think", "think_tokens", "reasoning_effort"),
    "Drafting": ("drafter", "draft_length"),
    "Output": ("logprobs", "shown_tokens"),
}  # fmt: skip
_TEXTS = texts_of(SamplingParams, GenerateOptions)
# For functions that take them; ``timeout`` is the name on the command line, too.
lists_text_options = lists(
    TextOptions,
    defaults_of(GenerateOptions, SamplingParams),
    without=("timeout_s", "sampling"),
    groups=GROUPS,
    texts=_TEXTS | {"timeout": _TEXTS.get("timeout_s", "")},
)


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
    _check_place(changes, TextOptions, OpenOptions.names(), "Pipeline.open")
    check_names(changes, list(TextOptions.__annotations__))
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
    _check_place(changes, OpenChanges, TextOptions.__annotations__, "generate or stream")


def _check_place(given: Mapping[str, Any], own: type, others: Collection[str], place: str) -> None:
    for name in given:
        if name not in own.__annotations__ and name in others:
            raise TypeError(f"unknown option {name!r}: give it to {place}")


def _names(options: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]
