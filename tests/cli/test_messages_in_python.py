"""Conversations and system messages in Python: what the command line makes of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgedec import Pipeline
from edgedec.errors import InputError

HI = [{"role": "user", "content": "Hi"}]
TALK = [*HI, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Why?"}]
BRIEF = {"role": "system", "content": "Be brief."}
SHORT: Any = {"max_new_tokens": 6, "drafter": "none", "ignore_eos": True, "seed": 1}


@pytest.fixture(scope="module")
def pipeline(bundle: Path) -> Iterator[Pipeline]:
    with Pipeline.open(bundle, threads=1, plan="none") as opened:
        yield opened


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--messages", "{file}"], {"messages": TALK}),
        (["--messages", "{file}", "--system", "Be brief."],
         {"messages": TALK, "system": "Be brief."}),
        (["Hi", "--system", "Be brief."], {"prompt": "Hi", "system": "Be brief."}),
        (["Hi"], {"prompt": "Hi"}),
    ],
    ids=str,
)  # fmt: skip
def test_the_same_text_as_on_the_command_line(
    run: Callable, bundle: Path, pipeline: Pipeline, tmp_path: Path, words: list[str], named: Any
) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(TALK))
    given = [word.replace("{file}", str(file)) for word in words]
    told = run(
        "generate", "--bundle", bundle, *given, "--drafter", "none", "-n", 6, "--json", "--seed", 1
    )
    assert told.exit_code == 0, told.output
    text = json.loads(told.stdout)
    found = pipeline.generate(**named, max_new_tokens=6, drafter="none", seed=1)
    assert (found.text, found.prompt_tokens) == (text["text"], text["prompt_tokens"])


def test_chat_is_a_stream_that_answers_messages(pipeline: Pipeline) -> None:
    expected = pipeline.generate(messages=TALK, **SHORT)
    stream = pipeline.chat(TALK, **SHORT)
    assert [event.token for event in stream] == expected.token_ids
    assert [e.token for e in pipeline.stream(messages=TALK, **SHORT)] == expected.token_ids
    assert asyncio.run(pipeline.agenerate(messages=TALK, **SHORT)).token_ids == expected.token_ids
    with_system = pipeline.chat(TALK, system="Be brief.", **SHORT)
    whole = pipeline.generate(messages=[BRIEF, *TALK], **SHORT)
    assert [event.token for event in with_system] == whole.token_ids
    assert whole.prompt_tokens > expected.prompt_tokens


def test_the_caller_s_messages_are_left_alone(pipeline: Pipeline) -> None:
    given = [dict(one) for one in TALK]
    pipeline.generate(messages=given, system="Be brief.", **SHORT)
    assert given == TALK
    assert pipeline.generate(messages=tuple(given), system="Be brief.", **SHORT).token_ids


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no prompt: expected text or a sequence of token ids, or messages"),
        ({"prompt": "Hi", "messages": HI}, "the prompt and messages exclude each other"),
        ({"prompt": [5, 6], "system": "x"}, "system goes with messages, or with a prompt that is"),
        ({"messages": [BRIEF, *HI], "system": "x"}, "the messages already begin with a system"),
        ({"messages": HI, "system": 5}, "system is 5: expected a text"),
        ({"prompt": ["a", "b"]}, "for several, call generate() for each in a loop, or `edgedec"),
        ({"prompt": [[5], [6]]}, "the prompt is a list of prompts: expected one"),
        ({"prompt": [5.5]}, "the prompt: expected text or a sequence of token ids"),
        ({"messages": "Hi"}, "messages: expected a list such as"),
        ({"messages": "Hi", "system": "x"}, "messages: expected a list such as"),
        ({"messages": []}, "messages: expected a list such as"),
        ({"messages": [{"role": "user"}]}, "expected an object with text role and content"),
        ({"messages": [{"role": "judge", "content": ""}]}, "roles are user, assistant and system"),
    ],
)
def test_wrong_prompts_say_what_is_expected(pipeline: Pipeline, given: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        pipeline.generate(**given)
    assert message in str(caught.value)


def test_a_model_without_a_template_refuses_messages(plain_bundle: Path) -> None:
    with Pipeline.open(plain_bundle, threads=1, plan="none") as pipeline:
        for given in ({"messages": HI}, {"prompt": "Hi", "system": "x"}):
            with pytest.raises(InputError, match="no chat template: give a plain prompt"):
                pipeline.generate(**given)  # type: ignore[arg-type]


def test_an_answer_goes_on_to_its_end_and_a_text_by_128_tokens(bundle: Path) -> None:
    """This model never ends by itself."""
    never: Any = {"logit_bias": {0: -100_000.0}, "temperature": 0}
    with Pipeline.open(bundle, max_context=200) as pipeline:
        answer = pipeline.generate(messages=[{"role": "user", "content": "Hi"}], **never)
        text = pipeline.generate("Hi", **never)
        limited = pipeline.generate(system="Be brief.", prompt="Hi", max_new_tokens=5, **never)
    assert answer.prompt_tokens + len(answer.events) in (200, 201)
    assert (len(text.events), len(limited.events)) == (128, 5)
