"""The sampling of answers: what a model's files ask for, or the usual one.

``generation_config.json`` or a GGUF file's metadata may state it. The files are untrusted: a
value that is out of range is left out, with a warning.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from edgedec.decoding.params import SamplingParams
from edgedec.errors import InputError

_log = logging.getLogger("edgedec")
_NAMES = ("temperature", "top_p", "top_k", "min_p")
# Also has an effect where nothing is drawn.
_PENALTY = "repetition_penalty"
DESCRIBED = (*_NAMES, _PENALTY)
# Of answers of a model that asks for none: greedily, small models repeat themselves without end; at
# temperature 1 without a filter they ramble. Peers: Ollama 0.8, 40, 0.9; llama.cpp 0.8, 40, 0.95.
USUAL = SamplingParams(temperature=0.7, top_k=40, top_p=0.9)


def of_answers(stated: Mapping[str, Any]) -> SamplingParams:
    """Return the sampling of answers of a model that states these values, if any."""
    return sampling_of(stated) or USUAL


def of_model(stated: Mapping[str, Any], *, chats: bool) -> SamplingParams | None:
    """Return the sampling of a model's answers; None if it asks for none and has no template."""
    return of_answers(stated) if chats else sampling_of(stated)


def sampling_of(stated: Mapping[str, Any]) -> SamplingParams | None:
    """Return the sampling that a model asks for; None if it asks for none.

    Without ``do_sample``, any other value asks for sampling; a temperature that is not stated is 1.

    Args:
        stated: values by the names of ``generation_config.json``.

    """
    drawn = [name for name in _NAMES if _number(stated.get(name))]
    greedy = stated.get("do_sample") is False
    if not (drawn or _number(stated.get(_PENALTY)) or isinstance(stated.get("do_sample"), bool)):
        return None
    draws = not greedy and bool(drawn or stated.get("do_sample"))
    found = SamplingParams(temperature=1.0 if draws else 0.0)
    for name in (*(drawn if draws else ()), _PENALTY):
        if _number(stated.get(name)):
            found = _changed(found, name, stated[name])
    return found


def described(sampling: SamplingParams) -> str:
    """Return it in words, such as ``temperature 0.6, top-p 0.95, top-k 20``.

    Of a greedy one, only what has an effect there.
    """
    parts = ["greedy" if sampling.greedy else f"temperature {sampling.temperature:g}"]
    for name, value in values_of(sampling).items():
        if name == _PENALTY or not (sampling.greedy or name == "temperature"):
            parts.append(f"{name.replace('_', '-')} {value:g}")
    return ", ".join(parts)


def values_of(sampling: SamplingParams) -> dict[str, float]:
    """Return temperature and what else has an effect, by name."""
    neutral = SamplingParams()
    found = {name: getattr(sampling, name) for name in DESCRIBED}
    return {k: v for k, v in found.items() if k == "temperature" or v != getattr(neutral, k)}


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _changed(sampling: SamplingParams, name: str, value: Any) -> SamplingParams:
    if name == "top_k":  # some write -1 for all tokens
        value = int(max(value, 0)) if -1 <= value <= 1 << 31 else value
    try:
        return dataclasses.replace(sampling, **{name: value})
    except InputError as error:
        _log.warning("the model's own sampling: %s: it is left out", error)
        return sampling
