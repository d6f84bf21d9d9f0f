"""Conversations in the dialects of eight families: every part arrives, or a line says which not.

The templates are written for these tests, with what published ones of these families do and
refuse: where tools stand, who may speak, how calls, ids and results are written, which contents may
be null. The right texts follow from those rules, as ``apply_chat_template`` renders them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgedec.errors import InputError
from edgedec.text.chat import ChatTemplate

EACH = "{% for m in messages %}"
END = "{% endfor %}"
ASK = "{% if add_generation_prompt %}"
# Qwen 2.5 and Hermes: tools in the system message, results in a user's turn.
QWEN = (
    "{% set ns = namespace(first=messages[0].role == 'system') %}"
    "{% if tools %}<|im_start|>system\n{% if ns.first %}{{ messages[0].content }}\n\n{% endif %}"
    "<tools>{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n</tools><|im_end|>\n"
    "{% elif ns.first %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    + EACH
    + "{% if m.role == 'user' or (m.role == 'system' and not loop.first)"
    " or (m.role == 'assistant' and not m.tool_calls) %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant{% if m.content %}\n{{ m.content }}"
    "{% endif %}{% for c in m.tool_calls %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n"
    "{% elif m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% endif %}" + END + ASK + "<|im_start|>assistant\n{% endif %}"
)
# Llama 3.1: tools in the first user's message, one call at once, its arguments as parameters.
LLAMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{% set system = messages[0].content | trim %}{% set rest = messages[1:] %}"
    "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\n"
    "{% if tools is not none %}Environment: ipython\n{% endif %}{{ system }}<|eot_id|>"
    "{% if tools is not none %}{% if rest | length == 0 %}"
    "{{ raise_exception('no first user message') }}{% endif %}"
    "<|start_header_id|>user<|end_header_id|>\n\n{% for t in tools %}{{ t | tojson(indent=4) }}\n\n"
    "{% endfor %}{{ rest[0].content | trim }}<|eot_id|>{% set rest = rest[1:] %}{% endif %}"
    "{% for m in rest %}{% if m.role not in ['ipython', 'tool'] and 'tool_calls' not in m %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% elif 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}"
    "{% set f = m.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}<|eot_id|>'
    "{% else %}<|start_header_id|>ipython<|end_header_id|>\n\n"
    "{% if m.content is mapping %}{{ m.content | tojson }}{% else %}{{ m.content }}{% endif %}"
    "<|eot_id|>{% endif %}"
    + END
    + ASK
    + "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
# Mistral 7B v0.3: tools before the last user's message, ids of nine, user and assistant by turns.
MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
    "{% set ns = namespace(turn=0) %}{% for m in rest %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and m.tool_calls is undefined) %}"
    "{% if (m.role == 'user') != (ns.turn % 2 == 0) %}"
    "{{ raise_exception('conversation roles must alternate') }}{% endif %}"
    "{% set ns.turn = ns.turn + 1 %}{% endif %}{% endfor %}{{ bos_token }}"
    "{% set users = rest | selectattr('role', 'equalto', 'user') | list %}"
    "{% for m in rest %}{% if m.role == 'user' %}"
    "{% if tools and m == users[-1] %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]"
    "{% endif %}[INST] {% if loop.last and system is defined %}{{ system }}\n\n{% endif %}"
    "{{ m.content }}[/INST]"
    "{% elif m.tool_calls is defined and m.tool_calls is not none %}[TOOL_CALLS] ["
    "{% for c in m.tool_calls %}{% if c.id is undefined or c.id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be strings with length 9!') }}{% endif %}"
    '{{ {"name": c.function.name, "arguments": c.function.arguments, "id": c.id} | tojson }}'
    "{% if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}"
    "{% elif m.role == 'assistant' %} {{ m.content }}{{ eos_token }}"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be strings with length 9!') }}{% endif %}"
    '[TOOL_RESULTS] {"content": {{ m.content | tojson }}, "call_id": "{{ m.tool_call_id }}"}'
    "[/TOOL_RESULTS]{% else %}{{ raise_exception('Only user and assistant roles') }}{% endif %}"
    + END
)
# Gemma 2: no system message, no tools, user and model by turns.
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    + EACH
    + "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>\n" + END + ASK + "<start_of_turn>model\n{% endif %}"
)
# Gemma 3: contents are texts or parts; the system message goes in front of the first user's.
GEMMA3 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{% if messages[0].content is string %}{% set front = messages[0].content + '\n\n' %}"
    "{% else %}{% set front = messages[0].content[0].text + '\n\n' %}{% endif %}"
    "{% set rest = messages[1:] %}{% else %}{% set front = '' %}{% set rest = messages %}"
    "{% endif %}{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ front if loop.first else '' }}{% if m.content is string %}{{ m.content | trim }}"
    "{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text | trim }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_turn>\n" + END + ASK + "<start_of_turn>model\n{% endif %}"
)
# Phi-4-mini: tools are text in the system message.
PHI = (
    EACH + "{% if m.role == 'system' and 'tools' in m and m.tools is not none %}"
    "<|system|>{{ m.content }}<|tool|>{{ m.tools }}<|/tool|><|end|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}"
    + END
    + ASK
    + "<|assistant|>{% else %}{{ eos_token }}{% endif %}"
)
# Granite 3: tools in a role of their own; calls are a list behind a token.
GRANITE = (
    "{% if tools %}<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson(indent=4) }}"
    "<|end_of_text|>\n{% endif %}"
    + EACH
    + "<|start_of_role|>{{ 'tool_response' if m.role == 'tool' else m.role }}<|end_of_role|>"
    "{% if m.role == 'assistant' and m.tool_calls is defined %}<|tool_call|>["
    "{% for c in m.tool_calls %}{{ c.function | tojson }}{% if not loop.last %}, {% endif %}"
    "{% endfor %}]{% else %}{{ m.content }}{% endif %}<|end_of_text|>\n"
    + END
    + ASK
    + "<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
# DeepSeek R1: arguments are joined as text; calls have no content; thinking is taken out.
DEEPSEEK = (
    "{{ bos_token }}"
    + EACH
    + "{% if m.role == 'system' %}{{ m.content }}{% endif %}"
    + END
    + EACH
    + "{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% elif m.role == 'assistant' and m.content is none %}<|calls|>{% for c in m.tool_calls %}"
    "{{ '<|call|>' + c.type + '<|sep|>' + c.function.name + '\n```json\n' + c.function.arguments"
    " + '\n```<|end|>' }}{% endfor %}<|/calls|>"
    "{% elif m.role == 'assistant' %}<|Assistant|>{{ m.content.split('</think>')[-1] }}<|eos|>"
    "{% elif m.role == 'tool' %}<|output|>{{ m.content }}<|/output|>{% endif %}"
    + END
    + ASK
    + "<|Assistant|><think>\n{% endif %}"
)
DIALECTS = {
    "qwen": QWEN, "llama": LLAMA, "mistral": MISTRAL, "gemma": GEMMA, "gemma 3": GEMMA3,
    "phi": PHI, "granite": GRANITE, "deepseek": DEEPSEEK,
}  # fmt: skip
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather", "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}  # fmt: skip


def call(id: str, city: str) -> dict[str, Any]:
    arguments = json.dumps({"city": city})
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
ANSWER, AGAIN = {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "More"}
CALLING = [{"role": "assistant", "content": None, "tool_calls": [call("call_abcdefgh1", "Oslo")]},
           {"role": "tool", "tool_call_id": "call_abcdefgh1", "content": "rain"}]  # fmt: skip
PARTS = {"role": "user", "content": [{"type": "text", "text": "One, "},
                                     {"type": "text", "text": "two"}]}  # fmt: skip
TALKS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None, list[str]]] = {
    "a question": ([USER], None, ["Hi"]),
    "a system message": ([SYSTEM, USER], None, ["Be brief.", "Hi"]),
    "a system message in parts": (
        [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]}, USER], None,
        ["Be brief.", "Hi"]),
    "several turns": ([SYSTEM, USER, ANSWER, AGAIN], None, ["Be brief.", "Hi", "Hello", "More"]),
    "parts": ([PARTS, ANSWER, AGAIN], None, ["One, two", "Hello", "More"]),
    "tools": ([USER], [TOOL], ["Hi", "weather", "Tells the weather."]),
    "tools and a system message": (
        [SYSTEM, USER], [TOOL], ["Be brief.", "Hi", "Tells the weather."]),
    "a call with null content, and its result": (
        [SYSTEM, USER, *CALLING], [TOOL], ["Be brief.", "Hi", "weather", "Oslo", "rain"]),
    "a call whose tools are not listed any more": (
        [USER, *CALLING], None, ["Hi", "weather", "Oslo", "rain"]),
    "a call without content": (
        [USER, {k: v for k, v in CALLING[0].items() if k != "content"}, CALLING[1]], [TOOL],
        ["Hi", "Oslo", "rain"]),
    "a call, its result, an answer, a question": (
        [USER, *CALLING, ANSWER, AGAIN], [TOOL], ["Hi", "Oslo", "rain", "Hello", "More"]),
    "empty lists and nulls": (
        [{**USER, "name": None}, {**ANSWER, "tool_calls": [], "refusal": None}, AGAIN], None,
        ["Hi", "Hello", "More"]),
    "an empty list of tools": ([USER], [], ["Hi"]),
    "a long id": (
        [USER, {**CALLING[0], "tool_calls": [call("x" * 40, "Oslo")]},
         {**CALLING[1], "tool_call_id": "x" * 40}], [TOOL], ["Hi", "Oslo", "rain"]),
}  # fmt: skip


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_part_arrives_once(dialect: str, talk: str) -> None:
    messages, tools, texts = TALKS[talk]
    template = ChatTemplate(DIALECTS[dialect], bos_token="<s>", eos_token="</s>")
    found = template.render(messages, tools=tools)
    assert template.left_out(messages, tools) == []
    places = [found.find(text) for text in texts]
    assert -1 not in places
    for text in set(texts) - {"weather"}:
        assert found.count(text) == 1
    # Python's own spelling of an object is not what was trained.
    assert "{'" not in found
    assert "None" not in found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_control_says_what_another_form_loses(dialect: str) -> None:
    """The same conversation as it comes is refused or loses a part in most dialects."""
    messages, tools, texts = TALKS["a call with null content, and its result"]
    template = ChatTemplate(DIALECTS[dialect], bos_token="<s>", eos_token="</s>")
    try:
        found = template._rendered(messages, tools)
    except InputError:
        return
    lost = [text for text in texts if text not in found]
    assert lost or "None" in found or dialect in ("qwen", "llama", "granite", "deepseek")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "image", "video"])
def test_what_is_no_text_is_refused_by_name(dialect: str, kind: str) -> None:
    content = [{"type": "text", "text": "What is this?"}, {"type": kind, kind: {"url": "x"}}]
    messages = [SYSTEM, {"role": "user", "content": content}]
    template = ChatTemplate(DIALECTS[dialect], bos_token="<s>", eos_token="</s>")
    with pytest.raises(InputError, match=r"^[^\n]+$") as error:
        template.render(messages)
    assert str(error.value).startswith(f"messages[1].content[1]: a part of type '{kind}'")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_two_calls_at_once_arrive(dialect: str) -> None:
    """Also where a template takes one alone, as Llama's."""
    messages = [USER, {"role": "assistant", "tool_calls": [call("a", "Oslo"), call("b", "Rome")]},
                {"role": "tool", "tool_call_id": "b", "content": "sun"},
                {"role": "tool", "tool_call_id": "a", "content": "rain"}]  # fmt: skip
    template = ChatTemplate(DIALECTS[dialect], bos_token="<s>", eos_token="</s>")
    found = template.render(messages, tools=[TOOL])
    assert template.left_out(messages, [TOOL]) == []
    assert all(found.count(text) == 1 for text in ("Oslo", "Rome", "sun", "rain"))
    assert found.index("Oslo") < found.index("Rome")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": None}],
        [{"role": "user"}],
        [{"role": "user", "content": 5}],
        [{"content": "Hi"}],
        [{"role": "assistant", "content": None, "tool_calls": []}],
        [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}],
    ],
)
def test_messages_that_say_nothing_are_refused(dialect: str, messages: list[Any]) -> None:
    with pytest.raises(InputError, match=r"^messages\[0\][^\n]+$"):
        ChatTemplate(DIALECTS[dialect]).render(messages)
