"""Models that call a function and answer with what it gave, in six families' dialects.

The templates are written for these tests, with what makes the families' own hard: who may carry
tools, in which shape arguments and ids come, which roles may follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_checkpoints import scripted_checkpoint

ANSWER = "It will rain in Oslo."
_NAMED = '{"name": "weather", "arguments": {"city": "Oslo"}}'
_ARGUMENTS = '{"city": "Oslo"}'
_CONTEXT = 8192
# The generation prompt's token tells which of two texts the model writes.
_ASKED, _TOLD = "<|asked|>", "<|told|>"
_LAST = "{% set told = messages[-1].role in ('tool', 'ipython') %}"
_PROMPT = "{% if add_generation_prompt %}{{ '<|told|>' if told else '<|asked|>' }}{% endif %}"


@dataclass(frozen=True)
class Dialect:
    """A template, how its models call, and which of their tokens are no text."""

    template: str
    call: Sequence[str]
    special: Sequence[str] = ()


_HERMES = """\
{% if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{% for message in messages %}
{% if message.role == 'tool' %}<|im_start|>user
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% elif message.role != 'system' %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}"""

_GRANITE = """\
{% if tools %}<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson(indent=4) }}
{% endif %}{% for message in messages %}<|start_of_role|>{{ message.role }}<|end_of_role|>
{% if message.tool_calls %}<|tool_call|>[{% for call in message.tool_calls %}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{% endfor %}]{% else %}{{ message.content }}{% endif %}<|end_of_text|>
{% endfor %}"""

_PHI = """\
{% for message in messages %}{% if message.role == 'system' and message.tools %}<|system|>
{{ message.content }}<|tool|>{{ message.tools }}<|/tool|><|end|>
{% elif message.tool_calls %}<|assistant|><|tool_call|>[{% for call in message.tool_calls %}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{% endfor %}]<|/tool_call|><|end|>
{% else %}<|{{ message.role }}|>{{ message.content }}<|end|>
{% endif %}{% endfor %}"""

_MISTRAL = """\
{% set rest = messages %}{% set system = '' %}
{% if messages[0].role == 'system' %}{% set system = messages[0].content + '\n\n' %}
{% set rest = messages[1:] %}{% endif %}
{% set users = rest | selectattr('role', 'equalto', 'user') | list %}
{% set turns = namespace(count=0) %}
{% for message in rest %}
{% if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{% if (message.role == 'user') != (turns.count % 2 == 0) %}
{{ raise_exception('Roles must alternate user and assistant') }}{% endif %}
{% set turns.count = turns.count + 1 %}{% endif %}
{% if message.role == 'user' %}
{% if message == users[-1] and tools %}
[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
[INST]{{ system if loop.first }}{{ message.content }}[/INST]
{% elif message.tool_calls %}[TOOL_CALLS][{% for call in message.tool_calls %}
{% if call.id is not defined or call.id | length != 9 %}
{{ raise_exception('Tool call IDs must have nine letters') }}{% endif %}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }},
"id": "{{ call.id }}"}{% endfor %}]</s>
{% elif message.role == 'tool' %}
{% if message.tool_call_id is not defined or message.tool_call_id | length != 9 %}
{{ raise_exception('Tool call IDs must have nine letters') }}{% endif %}
[TOOL_RESULTS]{"content": {{ message.content }},
"call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]
{% elif message.role == 'assistant' %}{{ message.content }}</s>
{% else %}{{ raise_exception('Only user, assistant and tool roles') }}{% endif %}
{% endfor %}"""

_LLAMA = """\
{% if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}
{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}
<|start_header_id|>system<|end_header_id|>{% if tools %}Environment: ipython{% endif %}
{{ system }}<|eot_id|>
{% if tools %}{% set first = messages[0].content | trim %}{% set messages = messages[1:] %}
<|start_header_id|>user<|end_header_id|>{% for tool in tools %}{{ tool | tojson(indent=4) }}
{% endfor %}{{ first }}<|eot_id|>{% endif %}
{% for message in messages %}
{% if message.role in ('tool', 'ipython') %}<|start_header_id|>ipython<|end_header_id|>
{{ message.content | tojson }}<|eot_id|>
{% elif message.tool_calls %}
{% if message.tool_calls | length != 1 %}
{{ raise_exception('This model only supports single tool-calls at once!') }}{% endif %}
{% set call = message.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot_id|>
{% else %}<|start_header_id|>{{ message.role }}<|end_header_id|>
{{ message.content | trim }}<|eot_id|>{% endif %}{% endfor %}"""

_HARMONY = """\
<|start|>system<|message|>Reasoning: low<|end|>
{% if tools or messages[0].role == 'system' %}<|start|>developer<|message|>
{% if messages[0].role == 'system' %}# Instructions
{{ messages[0].content }}{% endif %}
{% if tools %}namespace functions {
{% for tool in tools %}type {{ tool.function.name }} =
(_: {{ tool.function.parameters.properties | tojson }})
{% endfor %}}{% endif %}<|end|>{% endif %}
{% set last = namespace(name='') %}{% for message in messages %}
{% if message.role == 'assistant' and message.tool_calls %}
{% if message.tool_calls | length != 1 %}{{ raise_exception('one call a message') }}{% endif %}
{% set call = message.tool_calls[0].function %}{% set last.name = call.name %}
<|start|>assistant to=functions.{{ call.name }}<|channel|>commentary json<|message|>
{{- call.arguments | tojson }}<|call|>
{% elif message.role == 'tool' %}
{% if not last.name %}{{ raise_exception('a result without a call') }}{% endif %}
<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>
{{- message.content | tojson }}<|end|>
{% elif message.role != 'system' %}
<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>
{% endif %}{% endfor %}"""

DIALECTS = {
    "hermes": Dialect(_HERMES, ["<tool_call>", _NAMED, "</tool_call>"]),
    "granite": Dialect(_GRANITE, ["<|tool_call|>", f"[{_NAMED}]"]),
    "phi": Dialect(_PHI, ["<|tool_call|>", f"[{_NAMED}]", "<|/tool_call|>"]),
    "mistral": Dialect(_MISTRAL, ["[TOOL_CALLS]", f"[{_NAMED}]"]),
    "llama": Dialect(_LLAMA, ["<|python_tag|>", _NAMED.replace("arguments", "parameters")]),
    "harmony": Dialect(
        _HARMONY,
        ["<|channel|>", "commentary to=functions.weather ", "<|message|>", _ARGUMENTS],
        ("<|start|>", "<|channel|>", "<|message|>"),
    ),
}


def calling_checkpoint(folder: Path, name: str) -> Path:
    """Write a model that calls ``weather`` for Oslo when asked, and answers when told."""
    dialect = DIALECTS[name]
    entries = {"eos_token": "<|end|>", "chat_template": _LAST + dialect.template + _PROMPT}
    scripts = ([_ASKED, *dialect.call], [_TOLD, ANSWER])
    return scripted_checkpoint(
        folder, *scripts, context=_CONTEXT, entries=entries, special=dialect.special
    )


def tools() -> list[dict[str, Any]]:
    """Two functions, as OpenAI's API has them."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return [
        {
            "type": "function",
            "function": {"name": name, "description": f"The {name} there.", "parameters": city},
        }
        for name in ("weather", "time")
    ]
