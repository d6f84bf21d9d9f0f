"""Calls are found in the dialects of the families, however the text is cut into pieces.

The dialects are those of the models' cards and chat templates: Hermes and Qwen, Granite 3,
Phi-4-mini, Mistral (v3 and from v11), Llama 3, and harmony (gpt-oss).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgedec.serve.calls import NAMES, Calls
from edgedec.serve.tools import Tools

OSLO, ROME = {"city": "Oslo"}, {"city": 'R"o}m]e'}
NAMED = json.dumps({"name": "weather", "arguments": OSLO})
OTHER = json.dumps({"name": "stop", "arguments": ROME})
LLAMA = json.dumps({"name": "weather", "parameters": OSLO})
FIRST, BOTH = [("weather", OSLO)], [("weather", OSLO), ("stop", ROME)]
HIDDEN = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|tool_call|>")


def read(text: str, size: int) -> tuple[str, list[tuple[str, Any]], list[int]]:
    """The text around the calls, the calls, and how many were there after each piece."""
    calls = Calls(Tools([], frozenset({"weather", "stop"})), HIDDEN)
    shown, counts = "", []
    for start in range(0, len(text), size):
        shown += calls.push(text[start : start + size])
        counts.append(len(calls.found))
    shown += calls.finish()
    given = [one["function"] for one in calls.found]
    return shown, [(one["name"], json.loads(one["arguments"])) for one in given], counts


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("text", "shown", "found"),
    [
        (f"I look. <tool_call>\n{NAMED}\n</tool_call>", "I look. ", FIRST),
        (f"<tool_call>{NAMED}</tool_call><tool_call>{OTHER}</tool_call>", "", BOTH),
        (f"<|tool_call|>[{NAMED}, {OTHER}]", "", BOTH),
        (f"<|tool_call|>[{NAMED}]<|/tool_call|>", "", FIRST),
        (f"[TOOL_CALLS][{NAMED}, {OTHER}]", "", BOTH),
        (f"[TOOL_CALLS]weather[ARGS]{json.dumps(OSLO)}[TOOL_CALLS]stop[ARGS]{json.dumps(ROME)}",
         "", BOTH),
        (f"[TOOL_CALLS]weather[CALL_ID]a1b2c3d4e[ARGS]{json.dumps(OSLO)}", "", FIRST),
        (f"[TOOL_CALLS]weather{json.dumps(OSLO)}", "", FIRST),
        (f"<|python_tag|>{LLAMA}", "", FIRST),
        (f"<|python_tag|>{LLAMA}; {OTHER}", "", BOTH),
        (LLAMA, "", FIRST),
        (f"[{NAMED}, {OTHER}]", "", BOTH),
        (f"<tool_call>{NAMED}", "", FIRST),  # ended by its end-of-text token
        # What is no call is text, without marks that are special tokens.
        ("<tool_call>no JSON</tool_call> so", "<tool_call>no JSON</tool_call> so", []),
        ('<tool_call>{"name": "else"}</tool_call>', '<tool_call>{"name": "else"}</tool_call>', []),
        ("<|python_tag|>import os", "import os", []),
        ("[TOOL_CALLS]else[ARGS]{}", "else{}", []),
        ("a < b, c [1], <tool", "a < b, c [1], <tool", []),
        (f"Write {NAMED}", f"Write {NAMED}", []),
        ('{"name": "weather"', '{"name": "weather"', []),
        ("[1, 2]", "[1, 2]", []),
    ],
)  # fmt: skip
def test_dialects(text: str, shown: str, found: list[Any], size: int) -> None:
    assert read(text, size)[:2] == (shown, found)


def test_harmony_names_whom_a_message_is_for() -> None:
    text = f"<|channel|>to=functions.weather<|message|>{json.dumps(OSLO)}"
    assert read(text, len(text))[:2] == ("", FIRST)
    other = text.replace("weather", "else")
    assert read(other, len(other))[1] == []


def test_a_call_is_found_as_soon_as_it_ends() -> None:
    text = f"<tool_call>{NAMED}</tool_call>\n<tool_call>{OTHER}</tool_call>"
    _, _, counts = read(text, 1)
    end = text.index("</tool_call>") + len("</tool_call>")
    assert counts[end - 2 : end] == [0, 1]
    assert counts[-2:] == [1, 2]


def test_every_mark_is_shown_to_what_reads_calls() -> None:
    assert {"<tool_call>", "<|tool_call|>", "[TOOL_CALLS]", "<|python_tag|>", "<|channel|>",
            "[ARGS]", "[CALL_ID]", "</tool_call>", "<|/tool_call|>"} == set(NAMES)  # fmt: skip
