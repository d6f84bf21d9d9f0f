"""Chat templates in the manner of the large families, and which of them have pieces."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.text.chat import ChatTemplate


@dataclass(frozen=True, slots=True)
class Sample:
    """A template.

    Attributes:
        source: Jinja.
        pieces: whether pieces can say what it does.
        system: whether they take a system message.
        bos, eos: given to it.

    """

    source: str
    pieces: bool = True
    system: bool = True
    bos: str = ""
    eos: str = ""

    @property
    def template(self) -> ChatTemplate:
        """The template, ready to render."""
        return ChatTemplate(self.source, bos_token=self.bos, eos_token=self.eos)


_CHATML = """\
{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

_ALTERNATING = """\
{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('user and assistant must take turns') }}
    {%- endif %}
{%- endfor %}"""

SAMPLES = {
    "chatml": Sample(_CHATML),
    # Without a system message there is one of the model's own.
    "qwen2": Sample(
        "{% if messages[0].role != 'system' %}"
        "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}" + _CHATML
    ),
    # Earlier answers lose their thinking.
    "qwen3": Sample("""\
{%- for m in messages %}
    {%- set words = m.content %}
    {%- if m.role == 'assistant' and '</think>' in words %}
        {%- set words = words.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ m.role ~ '\\n' ~ words ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""),
    "llama3": Sample(
        """\
{%- for m in messages %}
    {%- if loop.first %}{{- bos_token }}{% endif %}
    {{- '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
        bos="<|begin_of_text|>",
    ),
    # The system's turn is always there, with dates in front of the message.
    "llama31": Sample(
        """\
{{- bos_token }}
{%- set first = messages[0].content | trim if messages[0].role == 'system' else '' %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nKnowledge until: May 2024\\nToday: 1 June 2024\\n\\n' }}
{{- first ~ '<|eot_id|>' }}
{%- for m in messages if m.role != 'system' %}
    {{- '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
        bos="<|begin_of_text|>",
    ),
    # As the one before, with the date of the day: other pieces tomorrow.
    "llama32": Sample(
        "{{ bos_token ~ 'Today: ' ~ strftime_now('%d %b %Y') ~ '\\n' }}" + _CHATML,
        pieces=False,
        bos="<|begin_of_text|>",
    ),
    "gemma2": Sample(
        """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}{{- raise_exception('no system messages') }}{% endif %}"""
        + _ALTERNATING
        + """\
{%- for m in messages %}
    {%- set role = 'model' if m.role == 'assistant' else m.role %}
    {{- '<start_of_turn>' ~ role ~ '\\n' ~ m.content | trim ~ '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{% endif %}""",
        system=False,
        bos="<bos>",
    ),
    # The system message comes first in the first user's turn, with its white space.
    "gemma3": Sample(
        """\
{{- bos_token }}
{%- set front = '' %}
{%- if messages[0].role == 'system' %}
    {%- set front = messages[0].content ~ '\\n\\n' %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
    {{- '<start_of_turn>' ~ ('model' if m.role == 'assistant' else 'user') ~ '\\n' }}
    {%- if loop.first %}{{- front }}{% endif %}
    {{- m.content | trim ~ '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{% endif %}""",
        bos="<bos>",
    ),
    "phi3": Sample("""\
{%- for m in messages %}
    {%- if m.role in ['system', 'user', 'assistant'] and m.content %}
        {{- '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{% endif %}"""),
    # Alternating turns that a system message breaks.
    "mistral1": Sample(
        "{{ bos_token }}" + _ALTERNATING + """\
{%- for m in messages %}
    {{- '[INST] ' ~ m.content ~ ' [/INST]' if m.role == 'user' else m.content ~ eos_token }}
{%- endfor %}""",
        system=False,
        bos="<s>",
        eos="</s>",
    ),
    # The system message stands in the first user's brackets.
    "mistral2": Sample(
        """\
{%- if messages[0].role == 'system' %}
    {%- set front = messages[0].content ~ '\\n\\n' %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- ' ' ~ m.content | trim ~ eos_token }}
    {%- else %}
        {{- '[INST] ' ~ (front if loop.first and front is defined else '') ~ m.content ~ '[/INST]' }}
    {%- endif %}
{%- endfor %}""",
        bos="<s>",
        eos="</s>",
    ),
    # The system message stands in the last user's brackets: pieces without system messages.
    "mistral3": Sample(
        """\
{%- set talk = messages[1:] if messages[0].role == 'system' else messages %}
{{- bos_token }}
{%- for m in talk %}
    {%- if m.role == 'assistant' %}
        {{- ' ' ~ m.content ~ eos_token }}
    {%- else %}
        {{- '[INST] ' }}
        {%- if loop.last and messages[0].role == 'system' %}{{- messages[0].content ~ '\\n\\n' }}{% endif %}
        {{- m.content ~ '[/INST]' }}
    {%- endif %}
{%- endfor %}""",
        system=False,
        bos="<s>",
        eos="</s>",
    ),
    # BOS at the beginning of every user's turn.
    "llama2": Sample(
        """\
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {{- bos_token ~ '[INST] ' ~ m.content | trim ~ ' [/INST]' }}
    {%- elif m.role == 'assistant' %}
        {{- ' ' ~ m.content | trim ~ ' ' ~ eos_token }}
    {%- else %}
        {{- raise_exception('unknown role ' ~ m.role) }}
    {%- endif %}
{%- endfor %}""",
        system=False,
        bos="<s>",
        eos="</s>",
    ),
    # What pieces cannot say: numbered turns, and contents that are changed.
    "numbered": Sample(
        "{% for m in messages %}{{ loop.index ~ '. ' ~ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}",
        pieces=False,
    ),
    "escaped": Sample(_CHATML.replace("m.content", "(m.content | e)"), pieces=False),
    "first only": Sample(
        "{% for m in messages %}{% if m.role != 'system' %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}"
        "{% endif %}{% endfor %}{{ 'assistant: ' if messages | length < 6 else 'A: ' }}",
        pieces=False,
    ),
}  # fmt: skip
