"""Ollama's routes: the texts of the other routes, in the form that its clients read."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from serving import Server, serving
from test_serve_tools import TOOLS, caller
from waiting import LIMIT_S

from edgedec.bundle import Bundle
from edgedec.gguf import GgufHeader
from edgedec.serve.ollama import _short

__all__ = ["caller"]  # a fixture
TALK = [{"role": "user", "content": "Hello there"}]
OPTIONS: dict[str, Any] = {"temperature": 0, "num_predict": 20}
FIGURES = {
    "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
    "eval_duration",
}  # fmt: skip


def asked(server: Server, path: str, **fields: Any) -> list[dict[str, Any]]:
    """The objects of an answer, one a line."""
    answer = server.post(path, {"model": "tiny", "options": OPTIONS, **fields})
    assert answer.status_code == 200, answer.text
    streams = fields.get("stream", True)
    kind = "application/x-ndjson" if streams else "application/json"
    assert answer.headers["content-type"].startswith(kind)
    return [json.loads(line) for line in answer.text.splitlines()]


def openais(server: Server, **fields: Any) -> Any:
    body = {"model": "tiny", "max_tokens": 20, "temperature": 0, **fields}
    path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
    return server.post(path, body).json()


def check_end(last: dict[str, Any], usage: dict[str, Any], reason: str) -> None:
    assert (last["done"], last["done_reason"]) == (True, reason)
    assert last.keys() >= FIGURES
    assert all(type(last[name]) is int for name in FIGURES)
    assert last["prompt_eval_count"] == usage["prompt_tokens"]
    assert last["eval_count"] == usage["completion_tokens"]
    assert 0 < last["prompt_eval_duration"] < last["total_duration"]
    assert last["eval_duration"] > 0
    parts = last["load_duration"] + last["prompt_eval_duration"] + last["eval_duration"]
    assert abs(parts - last["total_duration"]) <= 3  # each is rounded


@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_is_that_of_the_other_route(server: Server, stream: bool) -> None:
    wanted = openais(server, messages=TALK)
    lines = asked(server, "/api/chat", messages=TALK, stream=stream)
    text = "".join(line["message"]["content"] for line in lines)
    assert text == wanted["choices"][0]["message"]["content"]
    assert all(line["model"] == "tiny" for line in lines)
    assert all(line["message"]["role"] == "assistant" for line in lines)
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert (len(lines) > 1) == stream
    assert datetime.fromisoformat(lines[0]["created_at"]).tzinfo
    check_end(lines[-1], wanted["usage"], "length")


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_is_a_chats_first_turn(server: Server, stream: bool) -> None:
    system = {"role": "system", "content": "Be brief."}
    for given, talk in (({}, TALK), ({"system": "Be brief."}, [system, *TALK])):
        wanted = openais(server, messages=talk)
        lines = asked(server, "/api/generate", prompt="Hello there", stream=stream, **given)
        text = "".join(line["response"] for line in lines)
        assert text == wanted["choices"][0]["message"]["content"]
        check_end(lines[-1], wanted["usage"], "length")


@pytest.mark.parametrize("stream", [True, False])
def test_a_raw_prompt_is_continued(server: Server, stream: bool) -> None:
    wanted = openais(server, prompt="def f")
    lines = asked(server, "/api/generate", prompt="def f", raw=True, stream=stream)
    assert "".join(line["response"] for line in lines) == wanted["choices"][0]["text"]
    check_end(lines[-1], wanted["usage"], "length")
    chat = asked(server, "/api/generate", prompt="def f", stream=False)  # the control
    assert chat[0]["response"] != wanted["choices"][0]["text"]


def test_it_streams_unless_told_otherwise(server: Server) -> None:
    assert len(asked(server, "/api/chat", messages=TALK)) > 1
    assert len(asked(server, "/api/chat", messages=TALK, stream=True)) > 1


def test_options_shape_the_text(server: Server) -> None:
    shaped = {"seed": 3, "temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.01}
    wanted = openais(
        server, messages=TALK, repetition_penalty=1.3, presence_penalty=0.5, stop=["e"], **shaped
    )
    options = {**OPTIONS, **shaped, "repeat_penalty": 1.3, "presence_penalty": 0.5, "stop": ["e"]}
    (answer,) = asked(server, "/api/chat", messages=TALK, stream=False, options=options)
    assert answer["message"]["content"] == wanted["choices"][0]["message"]["content"]
    assert answer["done_reason"] == wanted["choices"][0]["finish_reason"]
    (plain,) = asked(server, "/api/chat", messages=TALK, stream=False)  # the control
    assert plain["message"]["content"] != answer["message"]["content"]


@pytest.mark.parametrize("length", [-1, -2, None])
def test_a_length_without_end_is_the_context(server: Server, length: int | None) -> None:
    raw = {"prompt": "x", "raw": True, "stream": False}
    options = {"temperature": 0, "num_predict": length}
    (answer,) = asked(server, "/api/generate", **raw, options=options)
    assert answer["eval_count"] > 16  # a completion's length in the other API
    assert answer["prompt_eval_count"] + answer["eval_count"] <= 2048


def test_options_of_loading_are_named_as_ignored(server: Server) -> None:
    options = {**OPTIONS, "num_ctx": 8192, "num_gpu": 1, "mirostat": 0}
    body = {"model": "tiny", "messages": TALK, "options": options, "keep_alive": "5m"}
    answer = server.post("/api/chat", {**body, "stream": False})
    named = answer.headers["x-edgedec-ignored"]
    assert named == "options.num_ctx, options.num_gpu, options.mirostat, keep_alive"
    plain = server.post("/api/chat", {"model": "tiny", "messages": TALK, "options": OPTIONS})
    assert "x-edgedec-ignored" not in plain.headers


@pytest.mark.parametrize("stream", [True, False])
def test_tools_are_called(caller: Server, stream: bool) -> None:
    options = {"temperature": 0, "num_predict": 60}
    given = {"messages": TALK, "tools": TOOLS, "stream": stream, "options": options}
    lines = asked(caller, "/api/chat", **given)
    (call,) = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert call["function"] == {"name": "weather", "arguments": {"city": "Oslo", "days": 2}}
    assert lines[-1]["done_reason"] == "stop"
    # A client sends it back as it came.
    talk = [*TALK, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_name": "weather", "content": "rain"}]  # fmt: skip
    again = asked(caller, "/api/chat", **{**given, "messages": talk})
    assert again[-1]["prompt_eval_count"] > lines[-1]["prompt_eval_count"]


def test_it_tells_what_it_has(server: Server) -> None:
    (model,) = server.get("/api/tags").json()["models"]
    assert (model["name"], model["model"]) == ("tiny", "tiny")
    assert model["size"] > 1000
    (loaded,) = server.get("/api/ps").json()["models"]
    assert loaded == {**model, "context_length": 2048, "expires_at": loaded["expires_at"]}
    version = [int(part) for part in server.get("/api/version").json()["version"].split(".")]
    assert version >= [0, 6, 4]
    shown = server.post("/api/show", {"model": "tiny"}).json()
    assert shown["model_info"]["llama.context_length"] == 2048
    assert shown["capabilities"] == ["completion", "tools"]
    assert "messages" in shown["template"]


def details_of(server: Server) -> dict[str, Any]:
    """What is said of the model, the same by each route."""
    (model,) = server.get("/api/tags").json()["models"]
    shown = server.post("/api/show", {}).json()
    assert shown["details"] == model["details"]
    found: dict[str, Any] = {**model["details"], **shown["model_info"]}
    return found


def test_it_tells_what_inspect_does(server: Server, bundle: Path) -> None:
    target = Bundle.open(bundle).target
    found = details_of(server)
    assert (found["format"], found["quantization_level"]) == ("onnx", "fp32")
    assert found["family"] == found["general.architecture"] == target.architecture == "llama"
    assert found["families"] == ["llama"]
    count = found["general.parameter_count"]
    assert count == target.dims["parameters"]
    assert found["parameter_size"] == f"{count / 1000:.0f}K"


def test_and_of_a_gguf_file(tmp_path: Path) -> None:
    pytest.importorskip(
        "llama_cpp", reason="llama-cpp-python not installed: install the extra gguf"
    )
    pytest.importorskip("gguf", reason="gguf not installed: install the extra gguf")
    from tiny_gguf import write_tiny_gguf

    file = write_tiny_gguf(tmp_path / "tiny.gguf", weights="Q8_0")
    header = GgufHeader.read(file)
    with serving(file, "--threads", "1") as server:
        found = details_of(server)
    assert (found["format"], found["quantization_level"]) == ("gguf", header.quantisation)
    assert found["family"] == header.architecture
    assert found["general.parameter_count"] == header.parameters


@pytest.mark.parametrize(
    ("count", "said"),
    [(134_515_008, "134.52M"), (1_543_714_304, "1.5B"), (7_000_000_000, "7B"), (3_000_000, "3M"),
     (125_000, "125K"), (12, "12")],
)  # fmt: skip
def test_numbers_of_parameters(count: int, said: str) -> None:
    assert _short(count) == said


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [("/api/chat", {"messages": []}, "message"), ("/api/chat", {}, "message"),
     ("/api/generate", {}, "response"), ("/api/generate", {"prompt": ""}, "response")],
)  # fmt: skip
def test_a_request_without_a_text_finds_the_model_loaded(
    server: Server, path: str, body: dict[str, Any], key: str
) -> None:
    answer = server.post(path, {"model": "tiny", **body, "keep_alive": "5m"})
    found = answer.json()
    assert (found["done"], found["done_reason"]) == (True, "load")
    assert key in found


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("POST", "/api/embed", "has no embeddings: use a server for embeddings"),
        ("POST", "/api/embeddings", "has no embeddings"),
        ("POST", "/api/pull", "the models that it was started with"),
        ("DELETE", "/api/delete", "the models that it was started with"),
    ],
)
def test_what_it_does_not_have(server: Server, method: str, path: str, message: str) -> None:
    import httpx

    answer = httpx.request(method, server.url + path, timeout=LIMIT_S)
    assert answer.status_code == 404
    assert message in answer.json()["error"]
