"""OpenAI's own client against a server process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import Server
from waiting import until

from edgedec import Pipeline

GREETING = [{"role": "user", "content": "Hello there"}]


@pytest.fixture(scope="module")
def alone(bundle: Path) -> Iterator[Pipeline]:
    """What the texts must be: plain decoding in this process."""
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        yield pipeline


def test_it_lists_its_model(server: Server) -> None:
    listed = server.client().models.list().data
    assert [one.id for one in listed] == ["tiny"]
    assert server.client().models.retrieve("tiny").id == "tiny"
    card = server.get("/v1/models").json()["data"][0]["edgedec"]
    assert card["sampling"] == {"temperature": 0.7, "top_k": 40, "top_p": 0.9}
    with pytest.raises(openai.NotFoundError, match="this server has 'tiny'"):
        server.client().models.retrieve("other")


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_chat_is_the_text_of_plain_decoding(
    server: Server, alone: Pipeline, temperature: float
) -> None:
    answer = server.client().chat.completions.create(
        model="tiny", messages=GREETING, max_tokens=30, temperature=temperature, seed=7
    )
    wanted = alone.chat(GREETING, max_new_tokens=30, temperature=temperature, seed=7)
    for _ in wanted:
        pass
    assert wanted.result is not None
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == wanted.result.text
    assert choice.finish_reason == ("length" if len(wanted.result.events) == 30 else "stop")
    assert answer.usage.prompt_tokens == wanted.result.prompt_tokens
    assert answer.usage.completion_tokens == len(wanted.result.events)
    ours: dict[str, Any] = answer.model_extra["edgedec"]
    assert ours["draft"] == "hybrid"
    assert 0 < ours["accepted"] <= ours["drafted"]
    assert ours["seed"] == 7


def test_a_stream_is_the_same_text_in_pieces(server: Server) -> None:
    client = server.client()
    given: Any = {"model": "tiny", "messages": GREETING, "max_tokens": 40, "temperature": 0}
    whole = client.chat.completions.create(**given)
    chunks = list(
        client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len(chunks) > 3
    assert chunks[-1].usage == whole.usage or chunks[-1].usage.completion_tokens == 40
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-2].model_extra["edgedec"]["accepted"] > 0


def test_completions_of_texts_and_tokens(server: Server, alone: Pipeline) -> None:
    client = server.client()
    wanted = alone.generate("def f", max_new_tokens=20, temperature=0)
    tokens = alone.tokenizer.encode("def f")
    for prompt in ("def f", tokens, ["def f"], [tokens]):
        answer = client.completions.create(
            model="tiny", prompt=prompt, max_tokens=20, temperature=0
        )
        assert answer.choices[0].text == wanted.text
    several = client.completions.create(
        model="tiny", prompt=["def f", "import"], max_tokens=5, temperature=0, n=2
    )
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text


def test_several_choices_have_seeds_of_their_own(server: Server, alone: Pipeline) -> None:
    answer = server.client().chat.completions.create(
        model="tiny", messages=GREETING, max_tokens=12, temperature=1, seed=3, n=3
    )
    prompt = alone.tokenizer.encode_chat(GREETING)
    wanted = [
        alone.generate(prompt, max_new_tokens=12, temperature=1.0, seed=3 + place).text
        for place in range(3)
    ]
    assert [choice.message.content for choice in answer.choices] == wanted
    assert len(set(wanted)) == 3


def test_logprobs_are_those_of_plain_decoding(server: Server, alone: Pipeline) -> None:
    prompt = alone.tokenizer.encode_chat(GREETING)
    wanted = alone.generate(prompt, max_new_tokens=10, logprobs=3, temperature=0)
    answer = server.client().chat.completions.create(
        model="tiny", messages=GREETING, max_tokens=10, temperature=0, logprobs=True,
        top_logprobs=3,
    )  # fmt: skip
    content = answer.choices[0].logprobs.content
    assert [entry.logprob for entry in content] == pytest.approx(
        [event.logprob for event in wanted.events], abs=1e-4
    )
    assert all(len(entry.top_logprobs) == 3 for entry in content)
    assert b"".join(bytes(e.bytes) for e in content).decode("utf-8", "replace") == wanted.text
    legacy = server.client().completions.create(
        model="tiny", prompt=prompt, max_tokens=10, temperature=0, logprobs=3
    )
    found = legacy.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == 10
    assert found.text_offset[0] == 0


def test_what_shapes_a_text_reaches_it(server: Server, alone: Pipeline) -> None:
    prompt = alone.tokenizer.encode_chat(GREETING)
    free = alone.generate(prompt, max_new_tokens=24, temperature=0)
    banned = free.token_ids[2]
    shaped: dict[str, Any] = {"presence_penalty": 1.5, "frequency_penalty": 0.5, "temperature": 0}
    wanted = alone.generate(
        prompt, max_new_tokens=24, logit_bias={banned: -100.0}, stop=(free.text[-3:],), **shaped
    )
    answer = server.client().chat.completions.create(
        model="tiny", messages=GREETING, max_completion_tokens=24,
        logit_bias={str(banned): -100}, stop=[free.text[-3:]], **shaped,
    )  # fmt: skip
    assert answer.choices[0].message.content == wanted.text != free.text


@pytest.mark.parametrize("field", ["drafter", "draft"])
def test_plain_decoding_on_demand(server: Server, field: str) -> None:
    client = server.client()
    given: Any = {"model": "tiny", "messages": GREETING, "max_tokens": 20, "temperature": 0}
    fast = client.chat.completions.create(**given)
    plain = client.chat.completions.create(**given, extra_body={"edgedec": {field: "none"}})
    assert plain.choices[0].message.content == fast.choices[0].message.content
    assert plain.model_extra["edgedec"]["drafted"] == 0 < fast.model_extra["edgedec"]["drafted"]


def test_pieces_say_who_wrote_them(server: Server) -> None:
    chunks = list(
        server.client().chat.completions.create(
            model="tiny", messages=GREETING, max_tokens=20, temperature=0, stream=True,
            extra_body={"edgedec": {"pieces": True}},
        )
    )  # fmt: skip
    pieces = [
        piece
        for chunk in chunks
        for piece in (chunk.model_extra or {}).get("edgedec", {}).get("pieces", [])
    ]
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert "".join(piece for piece, _ in pieces) == text
    assert {source for _, source in pieces} == {"draft", "target"}


def test_another_name_is_refused_where_names_count(start: Callable[..., Any], bundle: Path) -> None:
    with start("--strict-model", "--name", "mine") as server:
        assert [one.id for one in server.client().models.list()] == ["mine"]
        body = {"prompt": "x", "max_tokens": 2}
        for name in ("mine", "tiny", str(bundle)):  # the folder's name, and what was typed
            answer = server.post("/v1/completions", {**body, "model": name})
            assert answer.status_code == 200, answer.text
            assert "x-edgedec-model" not in answer.headers
        for name in ("gpt-4", "", None):
            refused = server.post("/v1/completions", {**body, "model": name})
            assert refused.status_code == 404
            assert "this server has 'mine'" in refused.json()["error"]["message"]


def test_tokenize_health_and_metrics(server: Server, alone: Pipeline) -> None:
    tokens = alone.tokenizer.encode("Hello")
    assert server.post("/tokenize", {"prompt": "Hello"}).json() == {
        "tokens": tokens, "count": len(tokens), "max_context": 2048,
    }  # fmt: skip
    talk = server.post("/tokenize", {"messages": GREETING}).json()["tokens"]
    assert talk == alone.tokenizer.encode_chat(GREETING)
    assert server.get("/health").json() == {"status": "ok"}
    before = server.figure("edgedec_generated_tokens_total")
    server.client().completions.create(model="tiny", prompt="x", max_tokens=9, temperature=0)
    assert server.figure("edgedec_generated_tokens_total") == before + 9
    assert 0 < server.figure("edgedec_acceptance_rate") <= 1
    assert server.figure("edgedec_block_efficiency") > 1
    assert server.figure("edgedec_ttft_seconds_count") >= 1
    assert server.figure("edgedec_memory_bytes") > 1e6
    # A request leaves after its last words have gone.
    until(lambda: server.figure("edgedec_running_requests") == 0)


def test_a_prefix_in_common_is_read_once(server: Server) -> None:
    system = {"role": "system", "content": "Answer in one sentence. " * 20}
    client = server.client()
    for place in range(2):
        answer = client.chat.completions.create(
            model="tiny", messages=[system, {"role": "user", "content": f"{place}?"}],
            max_tokens=4, temperature=0,
        )  # fmt: skip
    details = answer.usage.prompt_tokens_details
    assert details.cached_tokens > 100


def test_defaults_are_the_apis(server: Server) -> None:
    """16 tokens of a completion; a seed is drawn and reported, and gives the text again."""
    client = server.client()
    first = client.completions.create(model="tiny", prompt="x")
    seed = first.model_extra["edgedec"]["seed"]
    assert first.usage.completion_tokens <= 16
    again = client.completions.create(model="tiny", prompt="x", temperature=1, seed=seed)
    assert again.choices[0].text == first.choices[0].text
