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
from kinds import in_full
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


# Each runs apart: they warn, keep sockets open, and litellm looks for a table of prices.
CLIENTS = {
    "langchain_openai": """
from langchain_openai import ChatOpenAI
model = ChatOpenAI(base_url=url + "/v1", api_key="none", model="tiny", temperature=0, max_tokens=20)
print(json.dumps([model.invoke(hello).content, "".join(p.content for p in model.stream(hello))]))
""",
    "langchain_ollama": """
from langchain_ollama import ChatOllama
model = ChatOllama(base_url=url, model="tiny", temperature=0, num_predict=20)
print(json.dumps([model.invoke(hello).content, "".join(p.content for p in model.stream(hello))]))
""",
    "llama_index.llms.openai_like": """
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
model = OpenAILike(
    model="tiny", api_base=url + "/v1", api_key="none", is_chat_model=True, context_window=512,
    temperature=0, max_tokens=20,
)
talk = [ChatMessage(role="user", content=hello)]
stream = "".join(part.delta or "" for part in model.stream_chat(talk))
print(json.dumps([model.chat(talk).message.content, stream]))
""",
    "llama_index.llms.ollama": """
from llama_index.core.llms import ChatMessage
from llama_index.llms.ollama import Ollama
model = Ollama(
    model="tiny", base_url=url, temperature=0, context_window=512,
    additional_kwargs={"num_predict": 20},
)
talk = [ChatMessage(role="user", content=hello)]
stream = "".join(part.delta or "" for part in model.stream_chat(talk))
print(json.dumps([model.chat(talk).message.content, stream]))
""",
    "jupyter_ai_magics": """
import os
os.environ |= {"OLLAMA_HOST": url, "OPENAI_BASE_URL": url + "/v1", "OPENAI_API_KEY": "none"}
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "jupyter_ai_magics")
given = json.dumps({"temperature": 0, "num_predict": 20}, separators=(",", ":"))
text = shell.run_cell_magic("ai", f"ollama:tiny --format text -m {given}", hello).text
shell.run_line_magic("ai", "reset")  # or the first exchange is sent as well
zero = json.dumps({"temperature": 0}, separators=(",", ":"))  # it hands on no limit there
other = shell.run_cell_magic("ai", f"openai-chat-custom:tiny --format text -m {zero}", hello).text
print(json.dumps([text, other[: len(text)]]))
""",
    "litellm": """
import litellm
asked = dict(
    model="openai/tiny", api_base=url + "/v1", api_key="none", temperature=0, max_tokens=20,
    messages=[{"role": "user", "content": hello}],
)
whole = litellm.completion(**asked).choices[0].message.content
parts = litellm.completion(stream=True, **asked)
print(json.dumps([whole, "".join(part.choices[0].delta.content or "" for part in parts)]))
""",
}


def there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def needed(one: Any) -> Any:
    """Skip a client that is not installed before a server is started for it."""
    (module,) = one.values
    lacking = f"{module} is not installed, nor needed by edgedec"
    marks = [*one.marks, pytest.mark.skipif(not there(module), reason=lacking)]
    return pytest.param(module, marks=marks)


@pytest.mark.parametrize("module", [needed(one) for one in in_full(CLIENTS)])
def test_a_client_has_the_text_whole_and_as_a_stream(server: Server, module: str) -> None:
    code = f"import json, sys\nurl, hello = sys.argv[1:]\n{CLIENTS[module]}"
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, server.url, HELLO], env={**os.environ, **offline},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = text_here(server)
    assert expected
    assert json.loads(done.stdout.splitlines()[-1]) == [expected, expected]


def test_a_notebooks_own_magic_runs_the_command(tmp_path: Path) -> None:
    """``%%script`` gives a cell to a program and shows what it writes."""
    pytest.importorskip("IPython", reason="ipython is not installed, nor needed by edgedec")
    words = f"{sys.executable} -m edgedec generate demo - -n 8 -t 1 --temperature 0"
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as Shell\n"
        f"Shell.instance().run_cell_magic('script', {words!r}, 'def read_lines(path):')"
    )
    own = {**os.environ, "IPYTHONDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    asked: dict[str, Any] = {"env": own, "capture_output": True, "text": True, "check": True}
    shown = subprocess.run([sys.executable, "-c", code], **asked).stdout
    direct = subprocess.run(words.split(), input="def read_lines(path):\n", **asked).stdout
    assert shown.strip() == direct.strip() != ""
