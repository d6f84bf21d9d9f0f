"""Calls are found in the dialects of the families, however the text is cut into pieces.

The dialects are those of the models' cards and chat templates: Hermes and Qwen, Granite 3,
Phi-4-mini, Mistral (v3 and from v11), Llama 3, Hunyuan, Nemotron and harmony (gpt-oss); and those
that are not JSON: Qwen3.5, MiniCPM5, GLM, Gemma 4, FunctionGemma, LFM2 and OLMo 3.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgedec.serve.anthropic import MessagesForm
from edgedec.serve.calls import NAMES, Calls
from edgedec.serve.messages import Tools
from edgedec.serve.ollama import ChatForm
from edgedec.serve.parsing import ParsedRequest

OSLO, ROME = {"city": "Oslo"}, {"city": 'R"o}m]e'}
NAMED = json.dumps({"name": "weather", "arguments": OSLO})
OTHER = json.dumps({"name": "stop", "arguments": ROME})
LLAMA = json.dumps({"name": "weather", "parameters": OSLO})
FIRST, BOTH = [("weather", OSLO)], [("weather", OSLO), ("stop", ROME)]
HIDDEN = (
    "<|tool_call>",
    "<tool_call|>",
    '<|"|>',
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<|tool_call|>",
)


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


# Text of a model, what of it is shown, and the calls in it.
DIALECTS: list[tuple[str, str, list[Any]]] = [
    (f"I look. <tool_call>\n{NAMED}\n</tool_call>", "I look. ", FIRST),
    (f"<tool_call>{NAMED}</tool_call><tool_call>{OTHER}</tool_call>", "", BOTH),
    (f"<|python_tag|>{LLAMA};\n", "", FIRST),
    (f"<|tool_call|>[{NAMED}, {OTHER}]", "", BOTH),
    (f"<|tool_call|>[{NAMED}]<|/tool_call|>", "", FIRST),
    (f"<tool_calls>\n[{NAMED}, {OTHER}]\n</tool_calls>", "", BOTH),
    (f"<TOOLCALL>[{NAMED}]</TOOLCALL> so", " so", FIRST),
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
]  # fmt: skip
SIZES = [1, 2, 7, 1000]


def in_tags(name: str, city: str) -> str:
    return f"<function={name}>\n<parameter=city>\n{city}\n</parameter>\n</function>"


def in_braces(name: str, city: str) -> str:
    return f'<|tool_call>call:{name}{{city:<|"|>{city}<|"|>}}<tool_call|>'


def named(name: str, city: str) -> str:
    return f'<function name="{name}"><param name="city">{city}</param></function>'


# The same of calls that are not JSON.
CITY = ROME["city"]
TWO = [("weather", "Oslo"), ("stop", CITY)]
NATIVE: list[tuple[str, str, list[Any]]] = [
    (f"I look.\n<tool_call>\n{in_tags('weather', 'Oslo')}\n</tool_call>", "I look.\n", FIRST),
    ("\n".join(f"<tool_call>{in_tags(*one)}</tool_call>" for one in TWO), "\n", BOTH),
    (f"{in_tags('weather', 'Oslo')}\n</tool_call> so", " so", FIRST),  # whose mark is left out
    (named("weather", "Oslo") + named("stop", f"<![CDATA[{CITY}]]>"), "", BOTH),
    (f"<function=weather>{json.dumps(OSLO)}</function>", "", FIRST),
    ("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>", "",
     FIRST),
    ("<tool_call>weather</tool_call>", "", [("weather", {})]),
    ("I look." + "".join(in_braces(*one) for one in TWO), "I look.", BOTH),
    ('<|tool_call>call:weather{"city":"Oslo"}<tool_call|>', "", FIRST),
    ("<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call>", "", FIRST),
    ("<|tool_call_start|>[weather(city='Oslo'), stop(city='R\"o}m]e')]<|tool_call_end|>", "", BOTH),
    (f"<|tool_call_start|>[{NAMED}]<|tool_call_end|>So", "So", FIRST),
    ('<function_calls>weather(city="Oslo")\nstop(city="R\\"o}m]e")</function_calls>', "", BOTH),
    # Ended by its end-of-text token.
    ('<|tool_call_start|>[weather(city="Oslo")]', "", FIRST),
    # What is no call, or holds what an argument could not, is text.
    (in_tags("else", "Oslo"), in_tags("else", "Oslo"), []),
    ("<tool_call>Hi <function=weather></function></tool_call>",
     "<tool_call>Hi <function=weather></function></tool_call>", []),
    ("<function=weather>now</function>", "<function=weather>now</function>", []),
    ("<function=weather>{1}</function>", "<function=weather>{1}</function>", []),
    ("<tool_call>weather<arg_key>city</arg_key>Oslo</tool_call>",
     "<tool_call>weather<arg_key>city</arg_key>Oslo</tool_call>", []),
    ("<|tool_call>call:weather{city}<tool_call|>", "call:weather{city}", []),
    ("<|tool_call>call:weather{a:1 b:2}<tool_call|>", "call:weather{a:1 b:2}", []),
    ("<|tool_call>call:weather<tool_call|>", "call:weather", []),
    ("<|tool_call>call:weather{a:1} too<tool_call|>", "call:weather{a:1} too", []),
    ("<function_calls>[weather(a=1)] too</function_calls>",
     "<function_calls>[weather(a=1)] too</function_calls>", []),
    ("<function_calls>weather(a=1)]</function_calls>",
     "<function_calls>weather(a=1)]</function_calls>", []),
    ("<function_calls>[weather(a=1)</function_calls>",
     "<function_calls>[weather(a=1)</function_calls>", []),
    ('<function_calls>weather(a=1) "]" too</function_calls>',
     '<function_calls>weather(a=1) "]" too</function_calls>', []),
    ("<|tool_call>weather{a:1}<tool_call|>", "weather{a:1}", []),
    ("<function_calls>weather(1)</function_calls>", "<function_calls>weather(1)</function_calls>",
     []),
    ("<function_calls>weather(a=[1</function_calls>",
     "<function_calls>weather(a=[1</function_calls>", []),
    ('<function_calls>weather(a="</function_calls>',
     '<function_calls>weather(a="</function_calls>', []),
    ("Write <function= or <|tool_call", "Write <function= or <|tool_call", []),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "shown", "found"), DIALECTS + NATIVE)
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
    json_marks = {"<tool_call>", "<|tool_call|>", "[TOOL_CALLS]", "<|python_tag|>", "<|channel|>",
                  "[ARGS]", "[CALL_ID]", "</tool_call>", "<|/tool_call|>", "<tool_calls>",
                  "</tool_calls>", "<TOOLCALL>", "</TOOLCALL>"}  # fmt: skip
    others = {"<function=", "<function name=", "</function>", "<|tool_call>", "<tool_call|>",
              '<|"|>', "<start_function_call>", "<end_function_call>", "<escape>",
              "<|tool_call_start|>", "<|tool_call_end|>", "<function_calls>",
              "</function_calls>"}  # fmt: skip
    assert json_marks | others == set(NAMES)


def test_a_call_that_is_not_json_is_found_when_it_ends() -> None:
    text = "".join(in_braces(*one) for one in TWO)
    _, _, counts = read(text, 1)
    end = text.index("<tool_call|>") + len("<tool_call|>")
    assert counts[end - 2 : end] == [0, 1]
    assert counts[-2:] == [1, 2]


@pytest.mark.parametrize("mark", ["<function=", "<tool_call>say", "<|tool_call_start|>"])
def test_a_text_that_only_speaks_of_a_mark_goes_on_coming(mark: str) -> None:
    """The control: what names a function is held, however long it is."""
    tools = Tools([], frozenset({"weather"}))
    for after, held in ((" is how a call begins.", False), ("weather", True)):
        calls = Calls(tools)
        shown = calls.push(mark + after)
        shown += "".join(calls.push(" and so on <") for _ in range(50))
        assert bool(shown) != held
        assert shown + calls.finish() == mark + after + " and so on <" * 50


TYPES: dict[str, Any] = {
    "city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
    "near": {"type": ["string", "null"]}, "tags": {"type": "array"}, "at": {"type": "object"},
    "scale": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "any": {},
}  # fmt: skip
TYPED = [
    ("city", "12", "12"), ("city", "null", "null"), ("city", " a\n b ", " a\n b "),
    ("city", "a </parameter> b", "a </parameter> b"), ("days", "12", 12), ("days", "-3 ", -3),
    ("days", "soon", "soon"), ("days", "007", "007"), ("days", "1e999", "1e999"),
    ("metric", "True", True), ("metric", "false", False), ("near", "null", None),
    ("near", "here", "here"), ("tags", "['a', \"b, c\"]", ["a", "b, c"]),
    ("tags", "[1, [2]]", [1, [2]]),
    ("tags", "[1", "[1"), ("at", '{"x": {"y": null}}', {"x": {"y": None}}), ("scale", "0.5", 0.5),
    ("scale", "None", None), ("any", "12", "12"), ("any", '["a"]', ["a"]), ("new", "12", "12"),
    ("tags", "[" * 100_000 + "]" * 100_000, "[" * 100_000 + "]" * 100_000),
]  # fmt: skip


@pytest.mark.parametrize(("name", "written", "value"), TYPED)
def test_values_in_tags_have_the_types_of_the_schema(name: str, written: str, value: Any) -> None:
    function = {"name": "weather", "parameters": {"type": "object", "properties": TYPES}}
    tool = {"type": "function", "function": function}
    calls = Calls(Tools([tool], frozenset({"weather"})))
    text = f"<function=weather>\n<parameter={name}>\n{written}\n</parameter>\n</function>"
    assert calls.push(text) + calls.finish() == ""
    assert json.loads(calls.found[0]["function"]["arguments"]) == {name: value}


ODD = {"properties": {"city": {"type": 3, "anyOf": 1}}}


@pytest.mark.parametrize("parameters", [None, [], "x", {"properties": [1]}, ODD])
def test_schemas_may_say_anything(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    calls = Calls(Tools([tool], frozenset({"weather"})))
    calls.push(in_tags("weather", "Oslo"))
    calls.finish()
    assert json.loads(calls.found[0]["function"]["arguments"]) == OSLO


LITERALS = [
    ("{a:1,b:-2.5e3,c:true,d:None}", {"a": 1, "b": -2500.0, "c": True, "d": None}),
    ('{a:{b:[1,<|"|>two<|"|>,{}]},c:[]}', {"a": {"b": [1, "two", {}]}, "c": []}),
    ('{<|"|>a b<|"|>:oslo}', {"a b": "oslo"}), ("{}", {}), ('{a:<|"|><|"|>}', {"a": ""}),
    ('{a:"x\\"y\\n\\d"}', {"a": 'x"y\n\\d'}), ('{a:<|"|>x{,\\n<|"|>}', {"a": "x{,\\n"}),
    ('{a:"\\x41\\u00e9\\U0001F642"}', {"a": "Aé🙂"}), ('{a:"\\U99999999"}', {"a": "\\U99999999"}),
    ("{a:(1,2),b:'it\\'s\n'}", {"a": [1, 2], "b": "it's\n"}), ("{a:1e999}", {"a": "1e999"}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), LITERALS)
def test_literals(written: str, value: Any) -> None:
    assert read(f"<|tool_call>call:weather{written}<tool_call|>", 3)[1] == [("weather", value)]


@pytest.mark.parametrize("opening", ["[", "{a:", "{a:[", '<|"|>', "<function=weather>", "(", "'"])
def test_hostile_literals_are_text_and_take_no_time(opening: str) -> None:
    """Quadratic readers would take minutes."""
    for text in (f"<|tool_call>call:weather{{a:{opening * 50_000}<tool_call|>",
                 f"<|tool_call_start|>[weather(a={opening * 50_000})]<|tool_call_end|>",
                 "<function=weather>" + f"<parameter=a>{opening}" * 20_000):  # fmt: skip
        shown, found, _ = read(text, 100_000)
        assert (found, bool(shown)) == ([], True)


def in_deltas(text: str, size: int, forced: bool = False) -> tuple[str, list[list[str]], Calls]:
    """The text around the calls, and of each its name and the pieces of its arguments."""
    tools = Tools([], frozenset({"weather", "stop"}), "a grammar" if forced else None)
    calls = Calls(tools, HIDDEN, pieces=True)
    shown, parts = "", list[list[str]]()
    for start in [*range(0, len(text), size), None]:
        shown += calls.finish() if start is None else calls.push(text[start : start + size])
        for delta in calls.deltas():
            function = delta["function"]
            if delta["index"] == len(parts):
                assert delta["id"].startswith("call_")
                assert delta["type"] == "function"
                parts.append([function["name"]])
            assert delta["index"] == len(parts) - 1
            assert ("id" in delta) == ("name" in function)
            parts[-1].append(function["arguments"])
    return shown, parts, calls


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("text", "shown", "found"), DIALECTS + NATIVE)
def test_deltas_are_the_same_calls(text: str, shown: str, found: list[Any], size: int) -> None:
    seen, parts, calls = in_deltas(text, size)
    assert (seen, calls.cut) == (shown, False)
    assert [(name, json.loads("".join(pieces))) for name, *pieces in parts] == found


STREAMED = [
    text for text, _, found in DIALECTS if found and text not in (LLAMA, f"[{NAMED}, {OTHER}]")
]


@pytest.mark.parametrize("text", STREAMED)
def test_arguments_come_in_pieces(text: str) -> None:
    """The control: pieces of the whole text, or of JSON that may still be text, give one each."""
    _, parts, _ = in_deltas(text, 1)
    assert all(len(pieces) > 5 for _, *pieces in parts)
    for whole, size in ((text, len(text)), (LLAMA, 1)):
        _, parts, _ = in_deltas(whole, size)
        assert all(len(pieces) == 1 for _, *pieces in parts)


@pytest.mark.parametrize("size", SIZES)
def test_a_forced_call_comes_in_pieces(size: int) -> None:
    shown, parts, calls = in_deltas(NAMED, size, forced=True)
    assert (shown, calls.cut, len(parts)) == ("", False, 1)
    assert len(parts[0]) > (5 if size == 1 else 1)
    assert json.loads("".join(parts[0][1:])) == OSLO
    # Cut before its name it is text, and later a part of a call.
    assert in_deltas(NAMED[:12], size, forced=True)[:2] == (NAMED[:12], [])
    shown, parts, calls = in_deltas(NAMED[:-4], size, forced=True)
    assert (shown, calls.cut) == ("", True)
    assert "".join(parts[0][1:]) == json.dumps(OSLO)[:-3]


LATE = [
    '{"arguments": {"a": 1}, "name": "weather"}',
    '{"name": "weather", "arguments": "{\\"a\\": 1}"}',
    '{"type": "function", "function": {"name": "weather", "arguments": {"a": 1}}}',
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("call", LATE)
def test_what_is_not_known_before_the_end_comes_then(call: str, size: int) -> None:
    for text in (f"<tool_call>{call}</tool_call>", f"[TOOL_CALLS][{call}, {NAMED}]"):
        _, parts, _ = in_deltas(text, size)
        assert next((name, *map(json.loads, pieces)) for name, *pieces in parts) == (
            "weather",
            {"a": 1},
        )
        assert len(parts) == (2 if "[TOOL" in text else 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "arguments",
    ['{"a": "\\\\"}', '{"a": "\\"}{"}', '{"arguments": {"name": "stop"}}', '{"a": [{}, "]"]}', "{}",
     '{"a": "\\u00e9</tool_call>"}'],
)  # fmt: skip
def test_strings_and_braces(arguments: str, size: int) -> None:
    text = f'<tool_call>{{"id": "x{{", "name": "weather", "arguments": {arguments}}}</tool_call> so'
    shown, parts, _ = in_deltas(text, size)
    assert shown == " so"
    found = ["".join(pieces) for _, *pieces in parts]
    assert [json.loads(one) for one in found] == [json.loads(arguments)]
    assert found == [arguments] or size == 1000  # it is written anew where all comes at once


@pytest.mark.parametrize("size", SIZES)
def test_a_text_that_ends_within_arguments(size: int) -> None:
    text = f"I look. <tool_call>{NAMED}"
    for end in range(text.index("Oslo"), len(text)):
        shown, parts, calls = in_deltas(text[:end], size)
        assert shown == "I look. "
        assert calls.cut == (end < len(text) - 1)
        ((name, *pieces),) = parts
        assert name == "weather"
        assert json.dumps(OSLO).startswith("".join(pieces))


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"city": "Oslo"}', OSLO),
        ('{"city": "Os', {}),
        ('["Oslo"]', {}),
        ('{"a": NaN}', {}),
        ('{"a": 1e999}', {}),
        ("[" * 100_000 + "]" * 100_000, {}),
    ],
    ids=["whole", "cut", "list", "nan", "infinite", "deep"],
)
def test_arguments_are_an_object_where_an_api_has_them_so(arguments: str, given: Any) -> None:
    function = {"name": "weather", "arguments": arguments}
    message = {"content": "", "tool_calls": [{"id": "call_1", "function": function}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1,
             "prompt_tokens_details": {"cached_tokens": 0}}  # fmt: skip
    answer = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
    parsed = ParsedRequest([], False, False, False)
    (block,) = MessagesForm(parsed, {"model": "tiny"}).whole(answer)["content"]
    (call,) = ChatForm(parsed, {"model": "tiny"}).whole(answer)["message"]["tool_calls"]
    assert block["input"] == call["function"]["arguments"] == given
