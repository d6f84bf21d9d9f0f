"""``/completion`` and ``/props``: the texts of a completion, in the form of llama.cpp's server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served_here import serving_here
from serving import TEMPLATE, Server

from edgedec import Pipeline

GIVEN: dict[str, Any] = {"prompt": "def f", "n_predict": 12, "temperature": 0}


def asked(server: Server, **fields: Any) -> dict[str, Any]:
    """An answer, with the texts of a stream joined."""
    given = {**GIVEN, **fields}
    answer = server.post("/completion", given)
    assert answer.status_code == 200, answer.text
    if not given.get("stream"):
        whole: dict[str, Any] = answer.json()
        return whole
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
    *pieces, last = events
    assert pieces
    assert all(one.keys() == {"index", "content", "tokens", "stop"} for one in pieces)
    assert not any(one["stop"] for one in pieces)
    assert last["content"] == ""
    return {**last, "content": "".join(one["content"] for one in pieces)}


def openais(server: Server, **fields: Any) -> Any:
    body = {"prompt": "def f", "max_tokens": 12, "temperature": 0, **fields}
    return server.post("/v1/completions", body).json()


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_the_text_of_a_completion(server: Server, stream: bool) -> None:
    right = openais(server)
    tokens = server.post("/tokenize", {"prompt": "def f"}).json()["tokens"]
    for prompt in ("def f", tokens):
        found = asked(server, prompt=prompt, stream=stream)
        assert found["content"] == right["choices"][0]["text"]
        assert (found["stop"], found["stop_type"], found["stopping_word"]) == (True, "limit", "")
        assert (found["model"], found["tokens_predicted"]) == ("tiny", 12)
        assert found["tokens_evaluated"] == right["usage"]["prompt_tokens"]
        assert found["generation_settings"]["n_predict"] == 12
        times = found["timings"]
        assert times["predicted_n"] == 12
        assert times["prompt_n"] + times["cache_n"] == found["tokens_evaluated"]
        assert times["draft_n"] >= times["draft_n_accepted"] >= 0
        rate = times["predicted_per_second"]
        assert times["predicted_ms"] == pytest.approx(12 / rate * 1000)


@pytest.mark.parametrize("stream", [False, True])
def test_it_says_what_ended_a_text(server: Server, stream: bool) -> None:
    text = asked(server)["content"]
    found = asked(server, stop=["zzz", text[5:8]], stream=stream)
    assert (found["stop_type"], found["stopping_word"]) == ("word", text[5:8])
    assert found["content"] == text[: text.index(text[5:8])]


async def test_defaults_are_those_of_a_chat(pipeline: Pipeline) -> None:
    """And the text is as long as it gets."""
    usual = pipeline.sampling
    async with serving_here(pipeline) as (_, client):
        given = {"prompt": "x", "seed": 5, "stop": [" ", "e", "a"]}
        found = (await client.post("/completion", json=given)).json()
        settings = found["generation_settings"]
        assert usual is not None
        assert settings["temperature"] == usual.temperature
        assert settings["top_k"] == usual.top_k
        assert settings["n_predict"] >= 1 << 20
        other = (await client.post("/completion", json={**given, "temperature": 0.1})).json()
        assert other["generation_settings"]["temperature"] == 0.1  # the control
        options = {"temperature": 0.2, "repeat_penalty": 1.5, "num_predict": 2}
        theirs = (await client.post("/completion", json={**given, "options": options})).json()
        settings = theirs["generation_settings"]
        assert (settings["temperature"], settings["n_predict"]) == (0.2, 2)
        assert settings["repetition_penalty"] == 1.5
        assert settings["top_k"] == usual.top_k
        props = (await client.get("/props")).json()
        params = props["default_generation_settings"]["params"]
        assert params["temperature"] == usual.temperature


def test_props(server: Server) -> None:
    found = server.get("/props").json()
    assert found["default_generation_settings"]["n_ctx"] == 2048
    assert found["chat_template"] == TEMPLATE
    assert (found["total_slots"], found["model_alias"]) == (4, "tiny")
    assert found["build_info"].startswith("edgedec ")
    assert found["modalities"] == {"vision": False, "audio": False}


def test_pairs_of_biases_are_those_of_the_other_route(server: Server) -> None:
    (token,) = server.post("/tokenize", {"prompt": "q"}).json()["tokens"][-1:]
    found = asked(server, logit_bias=[[token, 100]])["content"]
    assert found == openais(server, logit_bias={str(token): 100})["choices"][0]["text"]
    assert found != asked(server)["content"]  # the control
