"""Other names of fields mean what OpenAI's do, and are refused where they would not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kinds import in_full
from serving import Server
from test_serve_tools import needs_grammars

from edgedec.decoding.sampling import SamplingParams
from edgedec.serve import body as other_fields
from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError
from edgedec.serve.other_names import check_samplers, translated
from edgedec.serve.parsing import chat, completion
from edgedec.serve.settings import Limits

PLAIN: dict[str, Any] = {"model": "tiny", "prompt": "def f", "temperature": 0}
TALK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}


def answer(server: Server, path: str, **fields: Any) -> tuple[Any, str | None]:
    """The text and the tokens of an answer, and the header of fields without an effect."""
    found = server.post(path, {"max_tokens": 12, **fields} if fields.pop("cut", 1) else fields)
    assert found.status_code == 200, found.text
    (choice,) = found.json()["choices"]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    count = found.json()["usage"]["completion_tokens"]
    return (text, count), found.headers.get("x-edgedec-ignored")


# By OpenAI's names, and by another.
SAME: list[tuple[dict[str, Any], dict[str, Any], str | None]] = [
    ({"max_tokens": 7}, {"n_predict": 7}, None),
    ({"max_tokens": 7}, {"num_predict": 7.0}, None),
    ({"max_tokens": 7}, {"max_new_tokens": 7}, None),
    ({"max_tokens": 7}, {"options": {"num_predict": 7, "num_ctx": 4096}}, "options.num_ctx"),
    ({"max_tokens": 7, "temperature": 0.9, "seed": 3, "top_k": 9},
     {"n_predict": 7, "options": {"temperature": 0.9, "seed": 3, "top_k": 9}}, None),
    ({"max_tokens": 7, "repetition_penalty": 1.3}, {"max_tokens": 7, "repeat_penalty": 1.3}, None),
    ({"max_tokens": 7}, {"max_tokens": 7, "repeat_penalty": 1.0, "num_ctx": 1}, "num_ctx"),
    ({"max_tokens": 7}, {"max_tokens": 7, "n_predict": 7}, None),  # both say the same
    ({"max_tokens": 7}, {"max_tokens": 7, "format": "", "grammar": "", "options": {}}, None),
    ({"max_tokens": 7, "min_p": 0.1, "temperature": 1, "seed": 1},
     {"max_tokens": 7, "min_p": 0.1, "temperature": 1, "seed": 1,
      "samplers": ["dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]}, None),
]  # fmt: skip


@pytest.mark.parametrize(("usual", "other", "ignored"), SAME)
@pytest.mark.parametrize(("path", "common"), [("completions", PLAIN), ("chat/completions", TALK)])
def test_they_mean_the_same(
    server: Server, usual: dict[str, Any], other: dict[str, Any], ignored: str | None, path: str,
    common: dict[str, Any],
) -> None:  # fmt: skip
    common = {name: value for name, value in common.items() if name != "temperature"}
    fixed = {"cut": 0, "temperature": 0, **common}
    fixed = {name: one for name, one in fixed.items() if name not in other.get("options", ())}
    right, _ = answer(server, f"/v1/{path}", **{**fixed, **usual})
    assert answer(server, f"/v1/{path}", **{**fixed, **other}) == (right, ignored)
    assert right[1] == 7


FORMS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},  # llama.cpp
    {"response_format": {"type": "json_schema", "schema": SCHEMA}},
    {"json_schema": SCHEMA},
    {"format": SCHEMA},
    {"grammar": 'root ::= "{\\"a\\": " [12] "}"'},
]
NAMED = {"type": "json_schema", "name": "s", "schema": SCHEMA, "strict": True}
CHAT: dict[str, Any] = {"messages": TALK["messages"]}
OLLAMA: dict[str, Any] = {"format": SCHEMA, "stream": False, "options": {"temperature": 0}}
# A request of each route and form, and the same without a form.
SHAPED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *(("/v1/completions", {**PLAIN, "max_tokens": 12}, form) for form in FORMS),
    *(("/v1/chat/completions", {**TALK, "max_tokens": 12}, form) for form in FORMS),
    ("/v1/messages", {**CHAT, "max_tokens": 12, "temperature": 0},
     {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
    ("/v1/responses", {"input": "x", "max_output_tokens": 12, "temperature": 0},
     {"text": {"format": NAMED}}),
    ("/api/chat", CHAT, OLLAMA),
    ("/api/generate", {"prompt": "x"}, OLLAMA),
    ("/api/generate", {"prompt": "x", "raw": True}, OLLAMA),
]  # fmt: skip


def text_of(found: Any) -> str:
    """The text of an answer of any route."""
    if "choices" in found:
        (choice,) = found["choices"]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])
    if "output" in found:
        return str(found["output"][-1]["content"][0]["text"])
    if "content" in found:
        return str(found["content"][0]["text"])
    return str(found["message"]["content"] if "message" in found else found["response"])


@pytest.mark.parametrize(("path", "common", "form"), SHAPED)
def test_forms(server: Server, path: str, common: dict[str, Any], form: dict[str, Any]) -> None:
    needs_grammars()
    found = server.post(path, {**common, **form})
    assert found.status_code == 200, found.text
    assert json.loads(text_of(found.json()))["a"] in (1, 2)
    assert "x-edgedec-ignored" not in found.headers
    with pytest.raises(json.JSONDecodeError):  # the control
        json.loads(text_of(server.post(path, {"stream": False, **common}).json()))


def test_a_schema_of_anything_and_json(server: Server) -> None:
    needs_grammars()
    (text, _), _ = answer(server, "/v1/completions", **PLAIN, format="json", seed=1)
    assert text.startswith("{")
    assert answer(server, "/v1/completions", **PLAIN, json_schema={})[0][1] > 0


LLAMACPP = ["penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]


@pytest.mark.parametrize(
    ("given", "sampling", "same"),
    [
        # llama.cpp's default: the temperature after the filters, which makes no difference at 1.
        (LLAMACPP, SamplingParams(temperature=1, top_p=0.9, min_p=0.1), True),
        (LLAMACPP, SamplingParams(temperature=0.8, top_p=0.9), False),
        (LLAMACPP, SamplingParams(temperature=0.8, top_k=40), True),
        (LLAMACPP, SamplingParams(temperature=0.8), True),
        (LLAMACPP, SamplingParams(temperature=0, top_k=40, top_p=0.9), True),
        (LLAMACPP, SamplingParams(temperature=1, repetition_penalty=1.1), True),
        (["temperature", "top_k", "top_p"], SamplingParams(temperature=0.8, top_p=0.9), True),
        (["top_k", "temperature", "top_p"],
         SamplingParams(temperature=0.8, top_k=9, top_p=0.9), True),
        (["temperature", "top_p", "top_k"],
         SamplingParams(temperature=0.8, top_k=9, top_p=0.9), False),
        (["top_k"], SamplingParams(temperature=0.8, top_k=9), False),  # no temperature
        (["temperature"], SamplingParams(temperature=0.8, top_k=9), False),  # no top_k
        (["temperature", "penalties"], SamplingParams(presence_penalty=1), False),
        (["top_k", "temperature", "temperature"], SamplingParams(temperature=0.5), False),
        ([], SamplingParams(temperature=1), True),
        ([], SamplingParams(temperature=0), False),  # llama.cpp then draws
        (["temperature", "of a later day"], SamplingParams(temperature=1), False),
        ([3], SamplingParams(temperature=1), False),
    ],
)  # fmt: skip
def test_samplers(given: list[Any], sampling: SamplingParams, same: bool) -> None:
    if same:
        check_samplers(given, sampling)
        return
    with pytest.raises(ApiError, match="samplers: expected "):
        check_samplers(given, sampling)


def test_the_page_names_them(repository: Path) -> None:
    page = (repository / "docs" / "server-routes.md").read_text("utf-8")
    (part,) = re.findall(r"## Other names\n(.*?)\n## ", page, re.DOTALL)
    named = set(re.findall(r"`(\w+)`", part))
    for name, value in {
        "n_predict": 1, "num_predict": 1, "max_new_tokens": 1, "json_schema": {}, "format": "json",
        "options": {"seed": 1},
    }.items():  # fmt: skip
        assert name not in translated({name: value})[0]
        assert name in named
    assert {"grammar", "samplers", "repeat_penalty", "num_ctx", "speculative"} <= named
    assert translated({"temperature": 1})[0] == {"temperature": 1}  # the control


SHORT: dict[str, Any] = {"model": "tiny", "prompt": "def f", "max_tokens": 8, "temperature": 0}
HEADER = "x-edgedec-ignored"


def told(server: Server, **more: Any) -> tuple[str, str | None]:
    answer = server.post("/v1/completions", {**SHORT, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"], answer.headers.get(HEADER)


@pytest.mark.parametrize("value", [True, "x", 7, {"a": [1]}])
def test_harmless_fields_are_accepted_and_named(server: Server, value: Any) -> None:
    plain = told(server)
    assert plain[1] is None
    names = sorted(other_fields.HARMLESS)
    text, named = told(server, **dict.fromkeys(names, value))
    assert (text, named) == (plain[0], ", ".join(names))


def test_nothing_is_drafted_where_speculation_is_not_wanted(server: Server) -> None:
    def drafted(**more: Any) -> int:
        body = {**SHORT, "max_tokens": 32, "prompt": "a b c a b c a b c a b"}
        body["edgedec"] = {"drafter": "lookup", **more.pop("edgedec", {})}
        answer = server.post("/v1/completions", {**body, **more}).json()
        return int(answer["edgedec"]["drafted"])

    fixed = {"edgedec": {"draft_length": 3}}
    assert drafted(speculative=True, **fixed) == drafted(**fixed) > 0
    assert drafted(speculative=False) == 0
    answer = server.post("/v1/completions", {**SHORT, "speculative": False, **fixed})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "speculative"


def test_a_field_without_a_value_is_not_there(server: Server) -> None:
    assert told(server, user=None)[1] is None


def test_other_fields_are_accepted_where_they_change_nothing(server: Server) -> None:
    neutral = other_fields.NEUTRAL
    assert told(server, **neutral) == (told(server)[0], ", ".join(neutral))


@pytest.mark.parametrize("name", sorted(other_fields.NEUTRAL))
@pytest.mark.parametrize("value", in_full([3, "x", [1]]))
def test_and_refused_where_they_would(server: Server, name: str, value: Any) -> None:
    answer = server.post("/v1/completions", {**SHORT, name: value})
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
    answer = server.post("/v1/completions", {**SHORT, field: [3]})
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400
    assert message.isprintable()
    assert message.endswith(advice)
    assert len(message) < 400


def test_a_part_of_a_request_is_read_the_same_way(server: Server) -> None:
    body = {**SHORT, "stream": True, "stream_options": {"include_obfuscation": False, "user": "x"}}
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
