"""Chat templates are asked by rendering: each takes a conversation in the form that arrives.

The templates are written for these tests, in the manner of the families that are named. The right
text is what transformers' ``apply_chat_template`` gives for messages in that form.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgedec.errors import InputError
from edgedec.text.chat import ChatTemplate, ending

LOOP = "{% for m in messages %}"
TURN = "<{{ m.role }}>{{ m.content }}"
PLAIN = LOOP + TURN + "{% endfor %}"
# Every role by itself, and calls with what stands in CALL.
CALLS = (
    LOOP
    + "{% if m.tool_calls %}{% for c in m.tool_calls %}{% set f = c.function %}CALL{% endfor %}"
    "{% else %}" + TURN + "{% endif %}{% endfor %}"
)
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "time_in",
        "description": "Tells the time.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
LISTED = json.dumps(TOOL)
USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "call_1234567890", "type": "function",
        "function": {"name": "time_in", "arguments": '{"city": "Oslo"}'}}  # fmt: skip
TALK = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1234567890", "content": "12:00"},
]


OBJECT = "<C>{{ f.name }}{{ f.arguments | tojson }}"
IN_JSON = '<C>time_in{"city": "Oslo"}'
REFUSES = "{% if THIS %}{{ raise_exception('x') }}{% endif %}"


def parts(role: str) -> str:
    """A template that reads the contents of one role as parts alone."""
    return (
        LOOP + "<{{ m.role }}>{% if m.role == '" + role + "' %}"
        "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )


def refusing(condition: str) -> str:
    """A template that raises an exception at a message."""
    return LOOP + "{% if " + condition + " %}{{ raise_exception('no') }}{% endif %}{% endfor %}"


def rendered(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
    template = ChatTemplate(source)
    assert template.left_out(messages, options.get("tools")) == []
    return template.render(messages, **options)


@pytest.mark.parametrize(
    ("source", "messages", "text"),
    [
        (parts("user"), [SYSTEM, USER], "<system>Be brief.<user>Hi"),
        (parts("system"), [SYSTEM, USER], "<system>Be brief.<user>Hi"),
        (parts("assistant"), [USER, {"role": "assistant", "content": "A"}, USER],
         "<user>Hi<assistant>A<user>Hi"),
        (parts("user"), [{"role": "user", "content": [{"type": "text", "text": "H"},
                                                      {"type": "text", "text": "i"}]}], "<user>Hi"),
        # Gemma 2 refuses the role; others leave its messages out.
        (refusing("m.role == 'system'") + PLAIN, [SYSTEM, USER], "<user>Be brief.\n\nHi"),
        (LOOP + "{% if m.role != 'system' %}" + TURN + "{% endif %}{% endfor %}", [SYSTEM, USER],
         "<user>Be brief.\n\nHi"),
        # One in the middle, of a template that takes the first alone.
        (refusing("m.role == 'system' and not loop.first") + PLAIN, [SYSTEM, USER, SYSTEM, USER],
         "<user>Be brief.\n\nHi<user>Be brief.\n\nHi"),
        # Empty lists and nulls count as absent (vLLM 13978).
        (refusing("'tool_calls' in m or 'name' in m") + PLAIN,
         [USER, {"role": "assistant", "content": "A", "tool_calls": [], "name": None}, USER],
         "<user>Hi<assistant>A<user>Hi"),
    ],
)  # fmt: skip
def test_texts(source: str, messages: list[dict[str, Any]], text: str) -> None:
    assert rendered(source, messages) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ tools | tojson }}" + PLAIN, LISTED + "<user>Hi"),
        ("{% if tools is not none %}{{ tools | length }}{{ tools | tojson }}{% endif %}" + PLAIN,
         "1" + LISTED + "<user>Hi"),
        # Only with a system message.
        (LOOP + "{% if m.role == 'system' %}<S>{{ m.content }}{{ tools | tojson }}{% else %}"
         + TURN + "{% endif %}{% endfor %}", "<S>" + LISTED + "<user>Hi"),
        # Phi-4-mini: in the system message.
        (LOOP + TURN + "{% if 'tools' in m %}{{ m.tools }}{% endif %}{% endfor %}",
         "<system>" + json.dumps([TOOL["function"]]) + "<user>Hi"),
        # Mistral: with the last user's message.
        (LOOP + "{% if loop.last and tools %}{{ tools | tojson }}{% endif %}" + TURN
         + "{% endfor %}", LISTED + "<user>Hi"),
    ],
)  # fmt: skip
def test_tools(source: str, text: str) -> None:
    assert rendered(source, [USER], tools=[TOOL]) == text.replace(LISTED, json.dumps([TOOL]))
    assert "time_in" not in rendered(source, [USER])  # the control


def test_tools_that_no_form_carries_are_described() -> None:
    # The word is in the source, and does nothing.
    text = rendered("{% set tools = none %}" + PLAIN, [USER], tools=[TOOL])
    assert text.startswith("<system>You can call:")
    assert "Tells the time." in text
    none = refusing("m.role == 'system'") + PLAIN
    assert rendered(none, [USER], tools=[TOOL]).startswith("<user>You can call:")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (OBJECT, IN_JSON),
        # DeepSeek joins texts; others print what they get (mlx-lm 1065).
        ("<C>{{ f.name + f.arguments }}", IN_JSON),
        ("<C>{{ f.name }}{{ f.arguments }}", IN_JSON),
        # Qwen3-Coder: each argument by itself.
        ("<C>{{ f.name }}{% for k, v in f.arguments | items %}<{{ k }}={{ v }}>{% endfor %}",
         "<C>time_in<city=Oslo>"),
        # Either, as the template says.
        ("<C>{{ f.name }}{{ f.arguments if f.arguments is string else f.arguments | tojson }}",
         IN_JSON),
        (REFUSES.replace("THIS", "m.content is not none") + OBJECT, IN_JSON),
        (REFUSES.replace("THIS", "'content' in m") + OBJECT, IN_JSON),
        # Mistral: ids of nine letters and digits.
        (REFUSES.replace("THIS", "c.id | length != 9") + "{{ c.id }}" + OBJECT,
         "call00001" + IN_JSON),
    ],
)  # fmt: skip
def test_calls(call: str, text: str) -> None:
    source = CALLS.replace("CALL", call)
    assert rendered(source, TALK) == f"<user>Hi{text}<tool>12:00"
    # The control: the form is the template's, not one for all.
    assert rendered(PLAIN.replace("<{{", "<<{{"), TALK) != f"<user>Hi{text}<tool>12:00"


def test_ids_of_calls_and_results_stay_together() -> None:
    source = refusing("m.tool_call_id is defined and m.tool_call_id | length != 9") + CALLS.replace(
        "CALL", "{{ c.id }}{{ f.arguments | tojson }}{{ f.name }}"
    ).replace(TURN, TURN + "{{ m.tool_call_id }}")
    second = {**CALL, "id": "call_other"}
    talk = [
        USER, {"role": "assistant", "content": "", "tool_calls": [CALL, second]},
        {"role": "tool", "tool_call_id": "call_other", "content": "1"},
        {"role": "tool", "tool_call_id": CALL["id"], "content": "2"},
    ]  # fmt: skip
    text = rendered(source, talk)
    assert text.endswith("<tool>1call00002<tool>2call00001")
    assert text.index("call00001") < text.index("call00002")


def test_results_whose_role_is_refused_are_the_users() -> None:
    source = refusing("m.role == 'tool'") + CALLS.replace("CALL", "{{ f.name }}{{ f.arguments }}")
    assert rendered(source, TALK).endswith("<user>Result of the call:\n12:00")


def test_calls_that_no_form_carries_are_text() -> None:
    text = rendered(PLAIN, TALK)
    assert '<tool_call>\n{"name": "time_in", "arguments": {"city": "Oslo"}}\n</tool_call>' in text
    assert "12:00" in text


@pytest.mark.parametrize(
    ("source", "messages", "lost"),
    [
        ("{{ messages[0].content }}", [USER, USER], "messages[1].content"),
        ("{{ messages[-1].content }}", [USER, USER], "messages[0].content"),
        (LOOP + "{% if m.role == 'user' %}" + TURN + "{% endif %}{% endfor %}",
         [USER, {"role": "assistant", "content": "A"}, USER], "messages[1].content"),
        ("{{ 'Hello' }}", [USER], "messages[0].content"),
    ],
)  # fmt: skip
def test_what_no_form_carries_is_named(
    source: str, messages: list[dict[str, Any]], lost: str
) -> None:
    with pytest.raises(InputError) as error:
        ChatTemplate(source).left_out(messages)
    assert str(error.value).startswith(f"{lost}: the model's chat template leaves it out")
    assert ChatTemplate(PLAIN).left_out(messages) == []  # the control


def test_text_beside_a_call_is_named_and_no_reason_to_refuse() -> None:
    talk = [USER, {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}, TALK[2]]
    source = CALLS.replace("CALL", "{{ f.name }}{{ f.arguments | tojson }}")
    assert ChatTemplate(source).left_out(talk) == ["messages[1].content"]
    kept = source.replace("{% for c", "{{ m.content }}{% for c", 1)
    assert ChatTemplate(kept).left_out(talk) == []


CLOSED = (
    LOOP + "<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize(
    ("source", "content", "text"),
    [
        (CLOSED, "A", "<user>Hi</user><assistant>A"),
        (CLOSED, "A ", "<user>Hi</user><assistant>A "),
        (CLOSED.replace("m.content", "m.content | trim"), "A ", "<user>Hi</user><assistant>A"),
        (CLOSED, "assistant", "<user>Hi</user><assistant>assistant"),  # a part of the end as well
        (parts("assistant"), "A", "<user>Hi<assistant>A"),
        (CLOSED.replace("m.content", "m.content.split('</think>')[-1]"), "x</think>A",
         "<user>Hi</user><assistant>A"),
    ],
)  # fmt: skip
def test_a_last_message_of_the_assistant_is_continued(source: str, content: str, text: str) -> None:
    talk = [USER, {"role": "assistant", "content": content}]
    ends = ending(talk, None, None)
    assert ChatTemplate(source).render(talk, **ends) == text
    for asked in ((True, None), (None, False)):  # the control: as the API itself has it
        closed = ChatTemplate(source).render(talk, **ending(talk, *asked))
        assert closed == ChatTemplate(source).render(talk)
    with pytest.raises(InputError, match="exclude each other"):
        ending(talk, True, True)
    with pytest.raises(InputError, match="expected a last message with text alone"):
        ChatTemplate(source).render(TALK[:2], continue_final_message=True)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"ensure_ascii": True}, {"indent": 2}, {"separators": (",", ":")}, {"sort_keys": True},
        {"indent": 1, "sort_keys": True}, {"separators": (", ", " = ")},
        {"ensure_ascii": True, "indent": None, "separators": (",", ":"), "sort_keys": True},
    ],
)  # fmt: skip
def test_tojson_has_transformers_options(options: dict[str, Any]) -> None:
    value = {"b": [1, None, "é<>&'"], "a": {"z": 1.5, "y": True}}
    written = ", ".join(f"{name}={value!r}" for name, value in options.items())
    source = "{{ value | tojson(" + written + ") }}{{ messages[0].content }}"
    expected = json.dumps(value, **{"ensure_ascii": False, **options})
    found = ChatTemplate(source).render([USER], variables={"value": value})
    assert found == expected + "Hi"
    other = json.dumps(value, ensure_ascii="ensure_ascii" not in options)
    assert found != other + "Hi"  # the control


def test_named_templates() -> None:
    named = {"default": PLAIN, "tool_use": "T{{ tools | length }}" + PLAIN, "rag": "R" + PLAIN}
    template = ChatTemplate(PLAIN, named=named)
    assert template.render([USER]) == "<user>Hi"
    assert template.render([USER], tools=[TOOL, TOOL]) == "T2<user>Hi"
    assert template.render([USER], variables={"documents": [{"text": "x"}]}) == "R<user>Hi"
    # The control: one that is not called so is asked like any other.
    assert ChatTemplate(named["tool_use"]).render([USER], tools=[TOOL]).startswith("T0<system>You")


def test_what_a_template_depends_on_is_tried() -> None:
    says = "{# reasoning_effort strftime_now enable_thinking #}" + PLAIN  # words that do nothing
    does = (
        "{{ reasoning_effort }}{{ strftime_now('%Y') }}{% if enable_thinking %}x{% endif %}" + PLAIN
    )
    for source, depends in ((says, False), (does, True)):
        template = ChatTemplate(source)
        assert template.reads_effort is depends
        assert template.dated is depends
        assert template.switches_thinking is depends


@pytest.mark.parametrize(
    ("source", "marks"),
    [
        (PLAIN + "{# <think> </think> #}", False),
        ("{% set unused = '</think>' %}" + PLAIN, False),
        (PLAIN + "{% if add_generation_prompt %}<A><think>{% endif %}", True),
        (PLAIN + "{% if enable_thinking is false %}<think></think>{% endif %}", True),
        (PLAIN.replace("m.content", "m.content.split('</' + 'think>')[-1]"), True),
        (LOOP + "<{{ m.role }}>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
         "{% endif %}{{ m.content }}{% endfor %}", True),
        (refusing("m.role == 'assistant'") + PLAIN, False),
        (refusing("true"), False),
    ],
)  # fmt: skip
def test_marks_of_thinking_are_those_that_it_writes_or_takes_out(source: str, marks: bool) -> None:
    assert ChatTemplate(source).marks("<think>", "</think>") is marks


# Llama 3.1 takes one call in a message, and refuses more.
ONE_CALL = refusing("m.tool_calls and m.tool_calls | length != 1")


@pytest.mark.parametrize("results", [("1", "2"), ("2", "1")])
@pytest.mark.parametrize("said", ["", "I look."])
def test_several_calls_of_a_message_become_several_messages(
    results: tuple[str, str], said: str
) -> None:
    calls = [
        {"id": key, "type": "function", "function": {"name": "f", "arguments": {"at": key}}}
        for key in ("1", "2")
    ]
    talk = [
        USER,
        {"role": "assistant", "content": said, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": key, "content": f"R{key}"} for key in results),
        USER,
    ]
    source = CALLS.replace("CALL", "{{ m.content or '' }}<C>{{ f.name }}{{ f.arguments | tojson }}")
    first, second = said + '<C>f{"at": "1"}', '<C>f{"at": "2"}'
    in_turn = f"<user>Hi{first}<tool>R1{second}<tool>R2<user>Hi"
    assert rendered(ONE_CALL + source, talk) == in_turn
    if not said:  # the control: a template that takes several has them in one
        both = "".join(f"<tool>R{key}" for key in results)
        assert rendered(source, talk) == f"<user>Hi{first}{second}{both}<user>Hi"
    second_alone = [*talk[:2], {"role": "tool", "tool_call_id": "2", "content": "R2"}, USER]
    text = f"<user>Hi{first}{second}<tool>R2<user>Hi"
    assert rendered(ONE_CALL + source, second_alone) == text
    unanswered = [*talk[:2], USER]
    assert rendered(ONE_CALL + source, unanswered) == f"<user>Hi{first}{second}<user>Hi"
