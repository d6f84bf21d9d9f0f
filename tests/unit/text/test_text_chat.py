"""Chat templates: they render what models expect, and nothing they do is believed."""

import time
from dataclasses import replace

import pytest
from kinds import in_full

from edgedec.errors import BundleError, InputError
from edgedec.text import chat
from edgedec.text.chat import ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]
CHATML = (
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}\n"
    "{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
# Shaped like the templates of the large families: a loop with its own variables, a namespace,
# raise_exception, tojson, loop controls, string methods and the generation mark.
RICH = """{{- bos_token }}
{%- set ns = namespace(last=-1, found=false) %}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('unknown role ' ~ message.role) }}
    {%- endif %}
    {%- if message.role == 'assistant' %}{%- continue %}{%- endif %}
    {%- set ns.last = loop.index0 %}
{%- endfor %}
{%- for message in messages[::-1] %}{% set ns.found = ns.found or loop.last %}{% endfor %}
{%- macro show(m) %}[{{ m.role | upper }}] {{ m.content.strip() | replace('a', 'b') }}{% endmacro %}
{%- for message in messages %}
    {{- show(message) }} {{ {'n': loop.index, 'é': '<'} | tojson }}
    {%- generation %}!{% endgeneration %}
{%- endfor %}
{{- ns.last }} {{ ns.found }} {{ messages | map(attribute='role') | join(',') }}{{ eos_token }}"""


def render(source: str, messages: list[dict[str, str]] | None = None) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages or HELLO)


def test_blocks_are_trimmed_as_models_expect() -> None:
    expected = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert render(CHATML) == expected
    closed = ChatTemplate(CHATML).render(HELLO, add_generation_prompt=False)
    assert closed == "<|im_start|>user\nHello<|im_end|>\n"


def test_what_templates_use() -> None:
    messages = [{"role": "user", "content": " banana "}, {"role": "assistant", "content": "x"}]
    expected = (
        '<s>[USER] bbnbnb {"n": 1, "é": "<"}![ASSISTANT] x {"n": 2, "é": "<"}!'
        "0 True user,assistant</s>"
    )
    assert render(RICH, messages) == expected


@pytest.mark.torch
@pytest.mark.parametrize("source", [CHATML, RICH])
def test_the_same_as_transformers(source: str) -> None:
    from transformers.utils.chat_template_utils import _compile_jinja_template

    theirs = _compile_jinja_template(source).render(
        messages=HELLO, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
    )
    assert render(source) == theirs


def test_dates() -> None:
    assert render("{{ strftime_now('%Y') }}") == time.strftime("%Y")


def test_a_refusal_is_the_users_mistake() -> None:
    with pytest.raises(InputError, match="refuses these messages: unknown role pirate"):
        render(RICH, [{"role": "pirate", "content": "Arr"}])


@pytest.mark.parametrize(
    "messages",
    [[], "Hello", [1], [{"role": "user"}], [{"role": 1, "content": "x"}], [{"content": "x"}], None],
)
def test_messages_are_checked(messages: object) -> None:
    with pytest.raises(InputError, match=r"^messages(\[0\])?: expected [^\n]+$"):
        ChatTemplate("x").render(messages)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{", "{% include 'x' %}{% endif %}", "{{ x | no }}"]
)
def test_what_is_no_template_is_refused(source: str) -> None:
    with pytest.raises(BundleError, match=r"^the chat template is not Jinja: [^\n]+$"):
        render(source)


def test_the_source_is_bounded() -> None:
    with pytest.raises(BundleError, match="expected at most"):
        ChatTemplate("x" * (1 << 20))


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ range.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['jinja2'] }}",
        "{{ self._TemplateReference__context }}",
        "{{ (messages | map(attribute='__class__') | list)[0].__mro__ }}",
        "{% set x = messages.append(1) %}",
        "{% include '/etc/passwd' %}",
        "{{ 'x'.center(100000000) }}",
        "{{ '%1000000000d' | format(1) }}",
    ],
)
def test_nothing_is_reached(source: str) -> None:
    try:
        text = render(source)
    except (InputError, BundleError) as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert text == ""  # an unsafe attribute is undefined, and prints as nothing


@pytest.mark.parametrize(
    "source",
    in_full(
        [
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
            "{{ 'x' * 10 ** 10 }}",  # folded while it is compiled
            "{% for m in messages recursive %}{{ loop([m]) }}{% endfor %}",
            "{{ 9 ** (9 ** 9) }}",
            "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
            "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
            "{% for i in range(10 ** 15) %}{% endfor %}",
            "{{ raise_exception('x\\n' * 10000000) }}",
            "(" * 100_000,
            "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
            "{{ " + "-" * 200_000 + "1 }}",
        ],
        4,
    ),
)
def test_nothing_runs_or_grows_without_end(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # ``test_sandbox.py`` has attacks under the real limits.
    monkeypatch.setattr(chat, "LIMITS", replace(chat.LIMITS, cpu_s=0.2))
    try:
        render(source)
    except (InputError, BundleError) as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert len(str(error)) < 500  # noqa: PT017


def test_a_bound_met_once_leaves_the_template_usable() -> None:
    template = ChatTemplate("{{ 'x' * (messages[0].content | int) }}")
    assert template.render([{"role": "user", "content": "10"}]) == "x" * 10
    for many in ("5000000", "900000000"):  # of characters, then of memory
        with pytest.raises(BundleError, match="the chat template was stopped: it "):
            template.render([{"role": "user", "content": many}])
        assert template.render([{"role": "user", "content": "4000000"}]) == "x" * 4_000_000


def test_text_of_any_characters_comes_back() -> None:
    content = "\n\u2028\0😀\udcff\x85"
    assert render("{{ messages[0].content }}", [{"role": "user", "content": content}]) == content


def test_values_that_are_not_json_are_refused() -> None:
    with pytest.raises(InputError, match="expected JSON values only"):
        render("x", [{"role": "user", "content": "x", "more": object()}])  # type: ignore[dict-item]
