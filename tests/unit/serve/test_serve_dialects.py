"""A conversation with tools through the clients of the field, in six templates' dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import tiny_bundles
from calling_models import ANSWER, DIALECTS, calling_checkpoint, tools
from kinds import in_full
from serving import Server, serving

from edgedec.export import ExportOptions
from edgedec.text.thinking import text_of
from edgedec.text.tokenizer import Tokenizer

SYSTEM, ASKED, RESULT = "Answer in one sentence.", "Will it rain in Oslo?", "rain, 7 degrees"
TOKENIZERS: dict[str, Tokenizer] = {}  # by the address of the server
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": ASKED},
]


@pytest.fixture(autouse=True)
def closes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what some clients leave to the garbage collector."""
    made, honest = list[httpx.Client](), httpx.Client.__init__

    def noted(self: httpx.Client, *given: Any, **named: Any) -> None:
        honest(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(httpx.Client, "__init__", noted)
    yield
    for one in made:
        one.close()


@pytest.fixture(scope="module", params=in_full(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def caller(dialect: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(dialect)
    target = calling_checkpoint(folder / "target", dialect)
    made = tiny_bundles.kept(ExportOptions(target, folder / "tiny", weights="fp32", parity=False))
    with serving(made, "--threads", "1") as server:
        TOKENIZERS[server.url] = Tokenizer.load(made / "tokenizer")
        yield server


def prompt_of(server: Server, messages: list[dict[str, Any]], given: Any) -> str:
    """The prompt that the template makes of messages and tools."""
    found = server.post("/tokenize", {"messages": messages, "tools": given})
    assert found.status_code == 200, found.text
    return text_of(TOKENIZERS[server.url], found.json()["tokens"])


def continued(calls: list[dict[str, Any]], content: Any) -> list[dict[str, Any]]:
    """The conversation with a call and what it gave."""
    said = {"role": "assistant", "content": content, "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": one["id"], "content": RESULT} for one in calls]
    return [*TALK, said, *results]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("content", [None, "", "missing"])
def test_openai(caller: Server, stream: bool, content: str | None) -> None:
    client = caller.client()

    def said(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]], str]:
        given: Any = {"model": "tiny", "messages": messages, "tools": tools(), "temperature": 0}
        if not stream:
            (choice,) = client.chat.completions.create(**given).choices
            calls = [one.model_dump() for one in choice.message.tool_calls or []]
            return choice.message.content or "", calls, choice.finish_reason
        text, parts, reason = "", {}, ""
        for chunk in client.chat.completions.create(**given, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
                for one in choice.delta.tool_calls or []:
                    part = parts.setdefault(
                        one.index,
                        {"id": one.id, "type": "function",
                         "function": {"name": one.function.name, "arguments": ""}},
                    )  # fmt: skip
                    part["function"]["arguments"] += one.function.arguments or ""
        return text, list(parts.values()), reason

    text, calls, reason = said(TALK)
    assert (text.strip(), reason) == ("", "tool_calls")
    assert [one["function"]["name"] for one in calls] == ["weather"]
    assert json.loads(calls[0]["function"]["arguments"]) == {"city": "Oslo"}
    messages = continued(calls, content)
    if content == "missing":
        del messages[2]["content"]
    assert said(messages) == (ANSWER, [], "stop")


def test_all_of_it_arrives(caller: Server) -> None:
    """The control leaves out a part each time."""
    call = {"id": "call_0123456789ab", "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}  # fmt: skip
    messages = continued([call], None)
    prompt = prompt_of(caller, messages, tools())
    for part in (SYSTEM, ASKED, RESULT, "weather", "Oslo", "time"):
        assert part in prompt
    for left, part in ((messages[1:], SYSTEM), (messages[:-1], RESULT)):
        assert part not in prompt_of(caller, left, tools())
    assert "time" not in prompt_of(caller, messages, tools()[:1])


@pytest.mark.parametrize("count", [2, 3])
def test_several_calls_of_a_message_arrive_or_are_named(
    caller: Server, dialect: str, count: int
) -> None:
    calls = [
        {"id": f"call_{number}", "type": "function",
         "function": {"name": "weather", "arguments": json.dumps({"city": f"city{number}"})}}
        for number in range(count)
    ]  # fmt: skip
    messages = continued(calls, None)
    for number, result in enumerate(messages[-count:]):
        result["content"] = f"result{number}"
    prompt = prompt_of(caller, messages, tools())
    for number in range(count):
        assert f"city{number}" in prompt, dialect
        assert f"result{number}" in prompt, dialect


def test_an_image_is_refused(caller: Server) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": ASKED}, image]
    with pytest.raises(openai.BadRequestError, match="image"):
        caller.client().chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": parts}], tools=tools()
        )


@pytest.mark.parametrize("stream", [False, True])
def test_ollama(caller: Server, stream: bool) -> None:
    ollama = pytest.importorskip("ollama", reason="ollama not installed: install the extra dev")
    client = ollama.Client(host=caller.url)

    def said(messages: list[Any]) -> tuple[str, list[Any]]:
        given: Any = {"model": "tiny", "messages": messages, "tools": tools()}
        given["options"] = {"temperature": 0}
        found = client.chat(**given, stream=stream)
        parts = list(found) if stream else [found]
        calls = [call for part in parts for call in part.message.tool_calls or []]
        return "".join(part.message.content or "" for part in parts), calls

    text, calls = said(TALK)
    assert text.strip() == ""
    assert [(one.function.name, one.function.arguments) for one in calls] == [
        ("weather", {"city": "Oslo"})
    ]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    result = {"role": "tool", "tool_name": "weather", "content": RESULT}
    assert said([*TALK, answer, result]) == (ANSWER, [])


def weather(city: str) -> str:
    """The weather in a city."""
    assert city == "Oslo"
    return RESULT


@pytest.mark.parametrize("stream", [False, True])
def test_llm(caller: Server, stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llm", reason="llm not installed: install the extra dev")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    from llm.default_plugins.openai_models import Chat

    model = Chat("tiny", model_name="tiny", api_base=f"{caller.url}/v1", key="none",
                 supports_tools=True)  # fmt: skip
    chain = model.chain(
        ASKED, system=SYSTEM, tools=[weather], stream=stream, key="none", options={"temperature": 0}
    )
    assert chain.text().endswith(ANSWER)


def lang_chain(kind: str, server: Server) -> Any:
    if kind == "openai":
        found = pytest.importorskip("langchain_openai", reason="langchain-openai not installed")
        return found.ChatOpenAI(
            model="tiny", base_url=f"{server.url}/v1", api_key="none", temperature=0,
            http_client=httpx.Client(),  # or one for all models of an address, which may not close
        )  # fmt: skip
    found = pytest.importorskip("langchain_ollama", reason="langchain-ollama not installed")
    return found.ChatOllama(model="tiny", base_url=server.url, temperature=0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["openai", "ollama"])
def test_lang_chain(caller: Server, kind: str, stream: bool) -> None:
    model = lang_chain(kind, caller).bind_tools(tools())
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage

    def said(messages: list[Any]) -> Any:
        if not stream:
            return model.invoke(messages)
        first, *others = model.stream(messages)
        for more in others:
            first += more
        return first

    talk: list[Any] = [SystemMessage(SYSTEM), HumanMessage(ASKED)]
    call = said(talk)
    ((name, arguments, key),) = [(one["name"], one["args"], one["id"]) for one in call.tool_calls]
    assert (name, arguments) == ("weather", {"city": "Oslo"})
    answer = said([*talk, call, ToolMessage(RESULT, tool_call_id=key)])
    assert answer.text == ANSWER


def test_open_webui(caller: Server) -> None:
    """What its server sends: a stream with tools, the calls as they came, and its title's task."""

    def streamed(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
        body = {"stream": True, "model": "tiny", "messages": messages, "tools": tools(),
                "stream_options": {"include_usage": True}, "temperature": 0}  # fmt: skip
        text, calls = "", dict[int, dict[str, Any]]()
        for event in caller.post("/v1/chat/completions", body).text.split("\n\n"):
            if not event.startswith("data: {"):
                continue
            for choice in json.loads(event[6:])["choices"]:
                text += choice["delta"].get("content") or ""
                for one in choice["delta"].get("tool_calls", ()):
                    if one["index"] in calls:
                        more = one["function"].get("arguments", "")
                        calls[one["index"]]["function"]["arguments"] += more
                    else:
                        calls[one["index"]] = one
        return text, list(calls.values())

    _, calls = streamed(TALK)
    assert [one["index"] for one in calls] == [0]
    said = {"role": "assistant", "content": "", "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": RESULT}
    assert streamed([*TALK, said, result]) == (ANSWER, [])
    title = {"model": "tiny", "messages": [{"role": "user", "content": "Name this chat."}],
             "stream": False, "max_completion_tokens": 1000}  # fmt: skip
    assert caller.post("/v1/chat/completions", title).status_code == 200
