"""What programs send to this server, and what they read in its answers.

``programs.json`` has the requests: recorded from the client that a program is made of, or written
down from its source where the program itself was not run. The answers must have what each program
reads, in the type that it expects.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Server
from test_serve_tools import caller

__all__ = ["caller"]  # a fixture

PROGRAMS: dict[str, Any] = json.loads(Path(__file__).with_name("programs.json").read_text("utf-8"))
EXCHANGES = [
    pytest.param(exchange, id=f"{name}-{number}")
    for name, program in PROGRAMS.items()
    for number, exchange in enumerate(program["exchanges"])
]
TYPES = {"str": str, "int": int, "bool": bool, "list": list, "object": dict, "null": type(None)}


def lacking(answer: Any, path: str, kinds: str) -> bool:
    """Whether a value of an answer is missing or of another type; ``a.0.b`` leads to it."""
    for step in path.split("."):
        try:
            answer = answer[int(step)] if isinstance(answer, list) else answer[step]
        except (IndexError, KeyError, TypeError, ValueError):
            return True
    wanted = [TYPES[kind] for kind in kinds.split("|")]
    return not any(type(answer) is kind for kind in wanted)


def objects(answer: httpx.Response) -> list[Any]:
    """The objects of an answer: one, one a line, or one an event."""
    kind = answer.headers["content-type"].split(";")[0]
    if kind == "text/event-stream":
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]
    if kind == "application/x-ndjson":
        return [json.loads(line) for line in answer.text.splitlines()]
    return [answer.json()]


def sent(server: Server, exchange: dict[str, Any]) -> list[Any]:
    body = exchange.get("body")
    answer = httpx.request(
        exchange["method"], server.url + exchange["path"], json=body, timeout=60.0
    )
    assert answer.status_code == 200, answer.text
    return objects(answer)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_program_finds_what_it_reads(caller: Server, exchange: dict[str, Any]) -> None:
    answers = sent(caller, exchange)
    for where, reads in exchange["reads"].items():
        chosen = {"every": answers, "first": answers[:1], "last": answers[-1:]}[where]
        for answer in chosen:
            assert [p for p, kinds in reads.items() if lacking(answer, p, kinds)] == [], answer
    text = exchange.get("text")
    if text is not None:  # a text came, in the places where the program looks for it
        assert any(not lacking(one, text, "str") for one in answers)


def test_what_is_missing_would_be_seen() -> None:
    answer = {"models": [{"name": "a", "size": True}]}
    assert not lacking(answer, "models.0.name", "str")
    assert lacking(answer, "models.0.size", "int")  # a bool is not a number
    assert lacking(answer, "models.1.name", "str")
    assert lacking(answer, "models.0.digest", "str")
    assert lacking({"a": None}, "a", "str")
    assert not lacking({"a": None}, "a", "str|null")


def test_every_program_says_where_its_requests_come_from(repository: Path) -> None:
    page = (repository / "docs" / "guides" / "programs.md").read_text("utf-8")
    for name, program in PROGRAMS.items():
        assert program["from"].startswith(("recorded: ", "read: ")), name
        section = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
        assert section is not None, name
        word = "recorded" if program["from"].startswith("recorded") else "source"
        assert word in section[1], name


def test_home_assistants_client_streams(caller: Server) -> None:
    """Through the client that its integration is made of, with the arguments that it gives."""
    ollama = pytest.importorskip("ollama", reason="ollama not installed: install the extra dev")

    named = {"type": "object", "properties": {"name": {"type": "string"}}}
    tool = {"name": "HassTurnOn", "description": "Turns on a device", "parameters": named}

    async def talk() -> list[Any]:
        async with ollama.AsyncClient(host=caller.url) as client:
            (model,) = (await client.list()).models
            stream = await client.chat(
                model=model.model, stream=True, keep_alive=-1, options={"num_ctx": 512},
                messages=[ollama.Message(role="user", content="Turn on the light")],
                tools=[{"type": "function", "function": tool}], format=None,
            )  # fmt: skip
            return [part async for part in stream]

    parts = asyncio.run(talk())
    assert parts[-1].done
    assert all(part.message.role == "assistant" for part in parts)


HELLO, ASKED = "Hello there", {"temperature": 0, "max_tokens": 20}


def text_here(server: Server) -> str:
    body = {"model": "any", "messages": [{"role": "user", "content": HELLO}], **ASKED}
    (choice,) = server.post("/v1/chat/completions", body).json()["choices"]
    return str(choice["message"]["content"])


def test_langchain(server: Server) -> None:
    for module in ("langchain_openai", "langchain_ollama"):
        pytest.importorskip(module, reason=f"{module} is not installed, nor needed by edgedec")
    from langchain_ollama import ChatOllama
    from langchain_openai import ChatOpenAI

    model: Any = ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model="tiny", **ASKED)  # type: ignore[arg-type,unused-ignore]
    other: Any = ChatOllama(base_url=server.url, model="tiny", temperature=0, num_predict=20)
    for one in (model, other):
        assert one.invoke(HELLO).content == text_here(server)
        assert "".join(part.content for part in one.stream(HELLO)) == text_here(server)


def test_llamaindex(server: Server) -> None:
    for module in ("llama_index.llms.openai_like", "llama_index.llms.ollama"):
        pytest.importorskip(module, reason=f"{module} is not installed, nor needed by edgedec")
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.ollama import Ollama
    from llama_index.llms.openai_like import OpenAILike

    talk = [ChatMessage(role="user", content=HELLO)]
    like: Any = OpenAILike(
        model="tiny", api_base=f"{server.url}/v1", api_key="none", is_chat_model=True,
        context_window=512, **ASKED,
    )  # fmt: skip
    other: Any = Ollama(
        model="tiny", base_url=server.url, temperature=0, context_window=512,
        additional_kwargs={"num_predict": 20},
    )  # fmt: skip
    for one in (like, other):
        assert one.chat(talk).message.content == text_here(server)
        assert "".join(part.delta or "" for part in one.stream_chat(talk)) == text_here(server)


_AIDER = """
import litellm, sys
parts = litellm.completion(
    model="openai/tiny", api_base=sys.argv[1] + "/v1", api_key="none", stream=True, temperature=0,
    max_tokens=20, messages=[{"role": "user", "content": "Hello there"}],
)
sys.stdout.write("".join(part.choices[0].delta.content or "" for part in parts))
"""


def test_litellm_as_aider_calls_it(server: Server) -> None:
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed, nor needed by edgedec")
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(  # apart, since it warns and looks for a table of prices
        [sys.executable, "-c", _AIDER, server.url], env={**os.environ, **offline},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == text_here(server)
