"""Fields that other servers have: accepted where they change nothing, refused with what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from serving import Server

from edgedec.serve import body as other_fields
from edgedec.serve.body import Body
from edgedec.serve.parsing import chat, completion
from edgedec.serve.settings import Limits

PLAIN: dict[str, Any] = {"model": "tiny", "prompt": "def f", "max_tokens": 8, "temperature": 0}
HEADER = "x-edgedec-ignored"


def text_of(server: Server, **more: Any) -> tuple[str, str | None]:
    answer = server.post("/v1/completions", {**PLAIN, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"], answer.headers.get(HEADER)


@pytest.mark.parametrize("value", [True, "x", 7, {"a": [1]}])
def test_harmless_fields_are_accepted_and_named(server: Server, value: Any) -> None:
    plain = text_of(server)
    assert plain[1] is None
    names = sorted(other_fields.HARMLESS)
    text, named = text_of(server, **dict.fromkeys(names, value))
    assert (text, named) == (plain[0], ", ".join(names))


def test_a_field_without_a_value_is_not_there(server: Server) -> None:
    assert text_of(server, user=None)[1] is None


def test_other_fields_are_accepted_where_they_change_nothing(server: Server) -> None:
    neutral = other_fields.NEUTRAL
    assert text_of(server, **neutral) == (text_of(server)[0], ", ".join(neutral))


@pytest.mark.parametrize("name", sorted(other_fields.NEUTRAL))
@pytest.mark.parametrize("value", [3, "x", [1]])
def test_and_refused_where_they_would(server: Server, name: str, value: Any) -> None:
    answer = server.post("/v1/completions", {**PLAIN, name: value})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == name
    assert error["message"].startswith(f"{name}: this server does not have this field: ")


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("functions", "send tools"),
        ("think", "send enable_thinking"),
        ("guided_json", "send response_format"),
        ("max_length", "send max_tokens"),
        ("cache_salt", "--private-cache"),
        ("temprature", "did you mean temperature?"),
        ("max_token", "did you mean max_tokens?"),
        ("ignore_eos", "leave it out, or send false"),
        ("lora_path", "leave it out"),
        ("x" * 5000, "leave it out"),
        ("line\nend", "leave it out"),
    ],
)
def test_a_refused_field_comes_with_advice(server: Server, field: str, advice: str) -> None:
    answer = server.post("/v1/completions", {**PLAIN, field: [3]})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400
    assert message.isprintable()
    assert message.endswith(advice)
    assert len(message) < 400


def test_a_part_of_a_request_is_read_the_same_way(server: Server) -> None:
    body = {**PLAIN, "stream": True, "stream_options": {"include_obfuscation": False, "user": "x"}}
    answer = server.post("/v1/completions", {**body, "edgedec": {"drafter": "none"}})
    assert answer.headers[HEADER] == "stream_options.include_obfuscation, stream_options.user"
    answer = server.post("/tokenize", {"prompt": "x", "user": "me"})
    assert answer.headers[HEADER] == "user"


def test_no_field_that_a_parser_reads_is_called_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()

    class Noting(Body):
        def get(self, name: str) -> Any:
            read.add(name)
            return super().get(name)

    monkeypatch.setattr("edgedec.serve.parsing.Body", Noting)
    talk = [{"role": "user", "content": "x"}]
    for parse, fields in ((completion, {"prompt": "x"}), (chat, {"messages": talk})):
        with pytest.raises(AttributeError):  # there is no tokenizer
            parse(fields, SimpleNamespace(sampling=None), Limits())  # type: ignore[arg-type]
    assert {"temperature", "logit_bias", "tools", "suffix", "edgedec"} <= read
    accepted = other_fields.HARMLESS | other_fields.NEUTRAL.keys()
    assert not accepted & read
    assert (accepted | {"suffix"}) & read  # the control


def listed(page: str, title: str) -> set[str]:
    """The names in code that a paragraph of a page lists after its title in bold."""
    (paragraph,) = re.findall(rf"\*\*{title}\*\*(.*?)\n(?:- |\n)", page, re.DOTALL)
    return set(re.findall(r"`(\w+)(?:: [^`]*)?`", paragraph))


def test_the_page_lists_them(repository: Path) -> None:
    page = (repository / "docs" / "server-routes.md").read_text("utf-8")
    assert listed(page, "Harmless fields") == other_fields.HARMLESS
    shown = re.findall(r"`(\w+): ([^`]+)`", page)
    neutral = {name: json.loads(value) for name, value in shown if name in other_fields.NEUTRAL}
    assert neutral == other_fields.NEUTRAL
    changed = page.replace("`user`, ", "")
    assert listed(changed, "Harmless fields") != other_fields.HARMLESS
