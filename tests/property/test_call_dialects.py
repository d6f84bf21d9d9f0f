"""Arguments of any kind, written as each dialect writes them, are read as they were."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from edgedec.serve.calls import Calls
from edgedec.serve.messages import Tools

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,8}", fullmatch=True)
# Without what ends a text in tags or between marks, which no model could write there either.
TEXTS = st.text(max_size=12).filter(lambda text: not {"<", "\r", "\x00"} & set(text))
NUMBERS = st.integers(-(10**12), 10**12) | st.floats(-1e12, 1e12, allow_nan=False)
VALUES = st.recursive(
    TEXTS | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array",
         dict: "object", type(None): "null"}  # fmt: skip


def braces(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{braces(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(braces, value)) + "]"
    return json.dumps(value)


def gemma(arguments: dict[str, Any]) -> str:
    return f"<|tool_call>call:look_up{braces(arguments)}<tool_call|>"


def python(arguments: dict[str, Any]) -> str:
    given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"<|tool_call_start|>[look_up({given})]<|tool_call_end|>"


def tags(arguments: dict[str, Any]) -> str:
    written = [
        f"<parameter={key}>\n{one if isinstance(one, str) else json.dumps(one)}\n</parameter>\n"
        for key, one in arguments.items()
    ]
    return f"<tool_call>\n<function=look_up>\n{''.join(written)}</function>\n</tool_call>"


def pairs(arguments: dict[str, Any]) -> str:
    written = [
        f"<arg_key>{key}</arg_key>\n"
        f"<arg_value>{one if isinstance(one, str) else repr(one)}</arg_value>\n"
        for key, one in arguments.items()
    ]
    return f"<tool_call>look_up\n{''.join(written)}</tool_call>"


def read(text: str, arguments: dict[str, Any], cuts: list[int]) -> tuple[str, list[Any]]:
    types = {key: {"type": KINDS[type(value)]} for key, value in arguments.items()}
    function = {"name": "look_up", "parameters": {"type": "object", "properties": types}}
    calls = Calls(Tools([{"type": "function", "function": function}], frozenset({"look_up"})))
    places = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    pieces = [text[begin:end] for begin, end in itertools.pairwise(places)]
    shown = "".join(map(calls.push, pieces)) + calls.finish()
    return shown, [json.loads(one["function"]["arguments"]) for one in calls.found]


@pytest.mark.parametrize("write", [gemma, python, tags, pairs])
@settings(max_examples=examples(100))
@given(ARGUMENTS, st.lists(st.integers(0, 1000), max_size=5))
def test_arguments_are_read_as_they_were(
    write: Callable[[dict[str, Any]], str], arguments: dict[str, Any], cuts: list[int]
) -> None:
    if write in (tags, pairs):  # a text there begins and ends where it does, but for a line's end
        arguments = {key: one.strip() if isinstance(one, str) else one
                     for key, one in arguments.items()}  # fmt: skip
    assert read(write(arguments), arguments, cuts) == ("", [arguments])


@pytest.mark.parametrize("write", [gemma, python, tags, pairs])
@settings(max_examples=examples(100))
@given(ARGUMENTS, st.integers(0, 10_000), TEXTS | st.just("<") | st.just("}"))
def test_a_damaged_call_is_text_or_a_call_and_nothing_else(
    write: Callable[[dict[str, Any]], str], arguments: dict[str, Any], place: int, more: str
) -> None:
    text = write(arguments)
    place %= len(text)
    damaged = text[:place] + more + text[place + 1 :]
    shown, found = read(damaged, arguments, [])
    assert shown or found
    assert len(found) <= 1
