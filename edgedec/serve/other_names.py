"""Names that llama.cpp, Ollama and others have for fields of OpenAI's API and mean the same by.

``docs/server-routes.md`` lists them. What means something else is refused, with what to do.
"""

from __future__ import annotations

from typing import Any

from edgedec._support.options import declared
from edgedec.decoding.params import SamplingParams
from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused

MOST_TOKENS = 1 << 24
# Numbers of tokens (llama.cpp, Ollama, transformers).
_LIMITS = ("n_predict", "num_predict", "max_new_tokens")
LIMITS = frozenset(("max_tokens", *_LIMITS))
# Fields of Ollama's ``options`` without an effect: the server was started with its own.
_LOADING = (
    "f16_kv", "low_vram", "main_gpu", "num_batch", "num_ctx", "num_gpu", "num_keep", "num_thread",
    "numa", "penalize_newline", "repeat_last_n", "use_mlock", "use_mmap", "vocab_only",
    # Samplers that Ollama itself no longer has.
    "tfs_z", "typical_p",
)  # fmt: skip
# Fields of ``options`` that mean what OpenAI's of the same name do; one has another name there.
_WIRED = (name for name, one in declared(SamplingParams).items() if one.option.wire is not None)
_SAME = (*(name for name in _WIRED if name != "repetition_penalty"), "stop")
# llama.cpp's samplers in the order in which this server has them, with what they change nothing at.
_ORDER: dict[str, dict[str, float]] = {
    "penalties": {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0},
    "temperature": {"temperature": 1},
    "top_k": {"top_k": 0},
    "top_p": {"top_p": 1},
    "min_p": {"min_p": 0},
}
# Those that are off here: their fields are refused at other values.
_OFF = ("dry", "typ_p", "typical_p", "xtc", "top_n_sigma", "infill", "adaptive_p")


def translated(fields: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a request by OpenAI's names, and those without an effect.

    Raises:
        ApiError: a field is not as expected, or is given by two names.

    """
    body = Body(fields)
    given: list[tuple[str, str, Any]] = [
        (name, "max_tokens", body.limit(name, MOST_TOKENS)) for name in _LIMITS
    ]
    if (schema := body.get("json_schema")) is not None:
        if not isinstance(schema, dict):
            raise refused("json_schema", "a JSON schema", schema)
        given.append(("json_schema", "response_format", of_schema(schema)))
    given.append(("format", "response_format", of_format(body)))
    options = body.part("options")
    if options is not None:
        given += [(f"options.{name}", name, value) for name, value in of_options(options).items()]
    found = {
        name: value
        for name, value in fields.items()
        if name not in (*_LIMITS, "json_schema", "format", "options")
    }
    for name, usual, value in given:
        if value is None:
            continue
        if found.get(usual) not in (None, value):
            raise ApiError(400, f"{name}: it is {usual} as well: leave one out", param=name)
        found[usual] = value
    return found, body.ignored


def of_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the ``response_format`` of a JSON schema."""
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def of_format(body: Body) -> dict[str, Any] | None:
    """Return the ``response_format`` of Ollama's ``format``; None without one."""
    form = body.get("format")
    if form in (None, ""):
        return None
    if form != "json" and not isinstance(form, dict):
        raise refused("format", "json or a JSON schema", form)
    return {"type": "json_object"} if form == "json" else of_schema(form)


def of_options(options: Body) -> dict[str, Any]:
    """Return Ollama's ``options`` by OpenAI's names; ApiError if one is not as expected."""
    found: dict[str, Any] = {"max_tokens": options.limit("num_predict", MOST_TOKENS)}
    found |= {name: options.get(name) for name in _SAME}
    found["repetition_penalty"] = options.number("repeat_penalty", 0, 100)
    options.end(_LOADING)
    return {name: value for name, value in found.items() if value is not None}


def check_samplers(given: list[Any] | None, sampling: SamplingParams) -> None:
    """Refuse a list of llama.cpp's samplers that would give another text.

    Raises:
        ApiError: it leaves one out that is on, has one that is not there, or another order.

    """
    if given is None:
        return
    on = [
        name
        for name, neutral in _ORDER.items()
        if any(getattr(sampling, one) != value for one, value in neutral.items())
    ]
    if sampling.greedy:  # whatever the filters leave, the most likely token is among it
        on = [name for name in on if name in ("penalties", "temperature")]
    asked = [one for one in given if one in on]
    if all(one in (*_ORDER, *_OFF) for one in given) and any(
        # The most likely tokens are the same at any temperature, so that one of these may be first.
        asked == order
        for order in (on, _swapped(on))
    ):
        return
    expected = ", ".join(on) or "none of them"
    raise ApiError(
        400, f"samplers: expected {expected}, in this server's order: send that, or leave it out",
        param="samplers",
    )  # fmt: skip


def _swapped(on: list[str]) -> list[str]:
    """Return samplers with the temperature after top_k, if both are there."""
    if "temperature" not in on or "top_k" not in on:
        return on
    changed = {"temperature": "top_k", "top_k": "temperature"}
    return [changed.get(name, name) for name in on]
