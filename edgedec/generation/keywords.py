"""Options given by name, as in ``generate("x", max_new_tokens=10, temperature=0.8)``."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from edgedec.decoding.sampling import SamplingParams
from edgedec.generation.options import GenerateOptions
from edgedec.records.load import LoadOptions

T = TypeVar("T")
# Names of options in other libraries, and what they are called here.
_ELSEWHERE = {
    "max_tokens": "max_new_tokens", "max_length": "max_new_tokens", "n_predict": "max_new_tokens",
    "do_sample": "temperature", "repeat_penalty": "repetition_penalty", "stop_strings": "stop",
    "stop_words": "stop", "max_time": "timeout_s", "timeout": "timeout_s", "drafter": "draft",
    "n_ctx": "max_context", "n_threads": "threads", "draft_path": "draft_model",
    "row_invariant": "batch_invariant",
}  # fmt: skip


class TextOptions(TypedDict, total=False):
    """The fields of ``GenerateOptions`` and of its ``SamplingParams``, by name."""

    max_new_tokens: int
    sampling: SamplingParams
    stop: str | Sequence[str]
    logprobs: int | None
    timeout_s: float | None
    ignore_eos: bool
    draft: str | None
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


class OpenChanges(TypedDict, total=False):
    """The fields of ``OpenOptions``, by name."""

    threads: int | None
    batch_threads: int | None
    batch_invariant: bool | None
    providers: Sequence[str]
    kv: str | None
    flash_attention: bool | None
    device: str | None
    gpu_layers: int | None
    mmap: bool | None
    mlock: bool | None
    repack: bool | None
    weight_memory: int | None
    cores: tuple[int, ...] | None
    draft: str
    draft_model: str | Path | None
    draft_length: int | str
    draft_load: LoadOptions | None
    draft_depth: int | None
    format: str
    draft_format: str | None
    schedule: str
    max_context: int | None
    context_limit: int | None
    draft_context: int | str | None
    kv_memory: int | None
    conversations: int
    parallel: int
    accept: str | None
    plan: str | Path
    memory: int | str | None
    runtime_options: Mapping[str, Any]


def with_changes(options: GenerateOptions, changes: Mapping[str, Any]) -> GenerateOptions:
    """Return options with some changed by name, including those of ``options.sampling``.

    Raises:
        TypeError: ``options`` is something else, or no option has a name that was given.
        InputError: a value is out of range.

    """
    if not isinstance(getattr(options, "sampling", None), SamplingParams):
        raise TypeError(
            f"options is {options!r:.60}: expected GenerateOptions, or single options by name, as"
            " max_new_tokens=10"
        )
    if not changes:
        return options
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


def replaced(options: T, changes: Mapping[str, Any]) -> T:
    """Return a dataclass with fields changed by name; TypeError for an unknown name."""
    check_names(changes, _names(options))
    return dataclasses.replace(options, **changes)  # type: ignore[type-var]


def check_names(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise TypeError for an unknown name, with the one that was probably meant."""
    for name in given:
        if name in known:
            continue
        elsewhere = _ELSEWHERE.get(name, "")
        near = [elsewhere] if elsewhere in known else difflib.get_close_matches(name, known, 2)
        meant = (
            f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(known)}"
        )
        raise TypeError(f"unknown option {name!r}: {meant}")


def _names(options: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]
