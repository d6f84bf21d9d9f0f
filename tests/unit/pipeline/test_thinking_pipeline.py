"""Answers of models that think: drafts, budgets, grammars, sampling, and the history."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kinds import each_once
from thinking_models import ANSWER, KEEPS, MANNERS, THOUGHTS, thinking_pipeline

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.errors import InputError
from edgedec.generation.own_sampling import USUAL

QUESTION = [{"role": "user", "content": "Hi"}]
THOUGHT, ANSWERED = "".join(THOUGHTS).strip(), "".join(ANSWER)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 20, 300]}},
    "required": ["a"],
    "additionalProperties": False,
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"think": False},
    {"think_tokens": 2},
    {"think_tokens": 0},
    {"stop": " is"},
    {"logprobs": 1, "think_tokens": 3},
    {"max_new_tokens": 4},
]


def all_of(found: Any) -> tuple[Any, ...]:
    return found.token_ids, found.text, found.thinking, found.finish_reason, found.thinking_tokens


@pytest.mark.parametrize(
    ("drafter", "manner"), each_once(["model", "lookup", "hybrid", "tree", "overlapped"], MANNERS)
)
def test_text_with_drafts_equals_text_without(manner: str, drafter: str) -> None:
    drafted = 0
    question = [{"role": "user", "content": "".join([*THOUGHTS, *ANSWER])}]
    with (
        thinking_pipeline(manner, drafter="none", certainty=6.0) as plain,
        thinking_pipeline(manner, drafter=drafter, certainty=6.0) as drafting,
    ):
        for seed, setting in enumerate(SETTINGS):
            for drawn in ({"temperature": 0}, {"temperature": 1.0, "seed": seed}):
                asked: dict[str, Any] = {"max_new_tokens": 40, **setting, **drawn}
                expected = plain.generate(messages=question, **asked)
                found = drafting.generate(messages=question, **asked)
                assert all_of(found) == all_of(expected)
                drafted += found.metrics.accepted_tokens
    assert drafted or drafter == "overlapped"  # a busy machine may leave its thread no turn


@pytest.mark.parametrize("manner", MANNERS)
def test_both_parts_are_drafted(manner: str) -> None:
    with thinking_pipeline(manner) as pipeline:
        found = pipeline.generate(messages=QUESTION)
    drafted = {event.thinking is None for event in found.events if event.source == "draft"}
    assert drafted == {True, False}


@pytest.mark.parametrize("manner", MANNERS)
def test_thinking_and_answer_are_apart(manner: str) -> None:
    with thinking_pipeline(manner) as pipeline:
        stream = pipeline.chat(QUESTION)
        events = list(stream)
    result = stream.result
    assert result is not None
    assert (result.thinking, result.text) == (THOUGHT, ANSWERED)
    assert "".join(event.thinking or "" for event in events) == THOUGHT
    assert "".join(event.text for event in events) == ANSWERED
    assert result.thinking_tokens == sum(event.thinking is not None for event in events)
    assert len(THOUGHTS) <= result.thinking_tokens <= len(events) - len(ANSWER)


@pytest.mark.parametrize("manner", MANNERS)
def test_a_budget_ends_the_thinking_and_the_answer_goes_on(manner: str) -> None:
    with thinking_pipeline(manner) as pipeline:
        whole = pipeline.generate(messages=QUESTION)
        for budget in range(6):
            found = pipeline.generate(messages=QUESTION, think_tokens=budget)
            assert THOUGHT.startswith(found.thinking)
            assert len(found.thinking) < len(THOUGHT)
            assert found.text == ANSWERED
            assert found.finish_reason == "eos"
        # A budget that is not reached changes nothing.
        assert all_of(pipeline.generate(messages=QUESTION, think_tokens=99)) == all_of(whole)


def test_a_thinker_without_a_budget_goes_on() -> None:
    """The control: what the budget forces does not come by itself."""
    with thinking_pipeline("deepseek") as pipeline:
        cut = pipeline.generate(messages=QUESTION, max_new_tokens=4)
        assert (cut.text, cut.finish_reason) == ("", "length")
        assert cut.figures.endswith("(length, while thinking)")
        told = pipeline.generate(messages=QUESTION, max_new_tokens=4, think_tokens=1)
        assert told.text == ANSWER[0]


@pytest.mark.parametrize("manner", MANNERS)
def test_without_thinking(manner: str) -> None:
    """A template's switch where it has one; elsewhere the thinking ends as soon as it begins."""
    with thinking_pipeline(manner) as pipeline:
        found = pipeline.generate(messages=QUESTION, think=False)
        assert (found.thinking, found.text) == ("", ANSWERED)
        assert pipeline.generate(messages=QUESTION, think=True).thinking == THOUGHT


def test_stop_strings_end_answers_not_thoughts() -> None:
    with thinking_pipeline("qwen") as pipeline:
        found = pipeline.generate(messages=QUESTION, stop=" answer")
        assert (found.thinking, found.text, found.finish_reason) == (THOUGHT, "The", "stop")
        found = pipeline.generate(messages=QUESTION, stop=" then")
        assert (found.thinking, found.text, found.finish_reason) == (THOUGHT, ANSWERED, "eos")


@pytest.mark.parametrize("manner", ["qwen", "deepseek", "gemma", "harmony"])
@pytest.mark.parametrize("drafter", ["none", "model", "hybrid"])
def test_a_grammar_holds_for_the_answer(manner: str, drafter: str) -> None:
    pytest.importorskip("llguidance")
    with thinking_pipeline(manner, drafter=drafter) as pipeline:
        for setting in ({}, {"think_tokens": 2}, {"think": False}, {"temperature": 1.0, "seed": 3}):
            asked: dict[str, Any] = {"max_new_tokens": 60, **setting}
            found = pipeline.generate(messages=QUESTION, json_schema=SCHEMA, **asked)
            assert found.text in ('{"a": 1}', '{"a": 20}', '{"a": 300}')
            assert bool(found.thinking) == ("think" not in setting)
        assert pipeline.generate(messages=QUESTION, regex="[a-z]{3}").text.isalpha()


def test_where_thinking_is_off_a_grammar_lets_none_begin() -> None:
    pytest.importorskip("llguidance")
    with thinking_pipeline("qwen") as pipeline:
        opening = pipeline.tokenizer.token_id("<think>")
        assert opening is not None
        asked: dict[str, Any] = {"regex": "[a-z]{3}", "logit_bias": {opening: 1000.0}}
        off = pipeline.generate(messages=QUESTION, think=False, **asked)
        assert len(off.text) == 3
        on = pipeline.generate(messages=QUESTION, max_new_tokens=6, **asked)
        assert on.token_ids == [opening] * 6


@pytest.mark.parametrize("manner", ["qwen", "deepseek"])
def test_a_grammar_switches_spelled_thinking_off(
    manner: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where the template has opened it, which then ends at once."""
    pytest.importorskip("llguidance")
    spelled = replace(MANNERS["spelled"], template=MANNERS[manner].template)
    with thinking_pipeline(spelled) as pipeline:
        found = pipeline.generate(messages=QUESTION, regex="[a-z]{3}")
    assert (found.thinking, len(found.text)) == ("", 3)
    assert [message[:16] for message in caplog.messages] == ["thinking is off:"]


def test_the_history_has_the_thinking_where_the_template_wants_it() -> None:
    turns = [
        *QUESTION,
        {"role": "assistant", "content": ANSWERED, "reasoning_content": "so"},
        {"role": "user", "content": "Why"},
    ]
    for template, kept in ((MANNERS["qwen"].template, False), (KEEPS, True)):
        manner = replace(MANNERS["qwen"], template=template)
        tokenizer = manner.tokenizer()
        text = tokenizer.render(turns)
        assert ("<think>so</think>" in text) == kept
        with thinking_pipeline(manner) as pipeline:
            assert pipeline.generate(messages=turns).text == ANSWERED


def test_prompts_are_continued_as_they_are() -> None:
    with thinking_pipeline("qwen") as pipeline:
        prompt = "<|turn|>user\nHi<|close|>\n<|turn|>assistant\n"
        found = pipeline.generate(prompt)
        assert found.text.startswith("<think>\n first")
        assert (found.thinking, found.thinking_tokens) == ("", 0)
        for name, value in (("think", True), ("think_tokens", 3), ("reasoning_effort", "low")):
            with pytest.raises(InputError, match=f"{name} goes with messages"):
                pipeline.generate(prompt, **{name: value})  # type: ignore[arg-type]


def test_thinking_that_a_template_does_not_have() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    plain = replace(MANNERS["spelled"], template=template)
    with thinking_pipeline(plain) as pipeline:
        with pytest.raises(InputError, match="this model has no thinking"):
            pipeline.generate(messages=QUESTION, think=True)
        assert pipeline.generate(messages=QUESTION, think=False, max_new_tokens=2).token_ids
        with pytest.raises(InputError, match="does not read it"):
            pipeline.generate(messages=QUESTION, reasoning_effort="low")
    with thinking_pipeline("harmony") as pipeline:
        assert pipeline.generate(messages=QUESTION, reasoning_effort="low").text == ANSWERED


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"think": "yes"}, "think is 'yes': expected True or False"),
        ({"think_tokens": -1}, "think_tokens is -1: expected 0 or more"),
        ({"think_tokens": 1.5}, "think_tokens is 1.5: expected a whole number"),
        ({"reasoning_effort": "huge"}, "reasoning_effort is 'huge': expected one of low, medium"),
    ],
)
def test_wrong_options_say_which(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        GenerateOptions(**wrong)


# -- the model's own sampling -------------------------------------------------------------------

OWN = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}


def drawn_with(pipeline: Pipeline, *args: Any, **options: Any) -> SamplingParams:
    stream = pipeline.stream(*args, **options)
    params = stream._request.sampler.params
    stream.close()
    return params


def test_answers_are_drawn_as_the_model_asks() -> None:
    own = SamplingParams(temperature=0.6, top_p=0.95, top_k=20)
    with thinking_pipeline("qwen", generation=OWN) as pipeline:
        assert pipeline.sampling == own
        assert drawn_with(pipeline, messages=QUESTION) == own
        assert drawn_with(pipeline, "Hi", system="Be brief.") == own
        seeded = drawn_with(pipeline, messages=QUESTION, max_new_tokens=3, seed=1)
        assert seeded == replace(own, seed=1)
        # What the user says wins, option by option.
        assert drawn_with(pipeline, messages=QUESTION, temperature=0.9).top_k == 20
        assert drawn_with(pipeline, messages=QUESTION, temperature=0).greedy
        given = GenerateOptions(max_new_tokens=3)
        assert drawn_with(pipeline, None, given, messages=QUESTION) == SamplingParams()
        # A text is continued greedily.
        assert drawn_with(pipeline, "Hi") == SamplingParams()
        assert pipeline.sampling != USUAL
    with thinking_pipeline("qwen") as pipeline:
        assert pipeline.sampling == USUAL
        assert drawn_with(pipeline, messages=QUESTION) == USUAL
        assert drawn_with(pipeline, "Hi") == SamplingParams()


def test_an_asynchronous_answer_is_the_same() -> None:
    async def answer() -> tuple[str, str, str]:
        thought = ""
        async with pipeline.astream(messages=QUESTION, think_tokens=2) as stream:
            async for event in stream:
                thought += event.thinking or ""
        assert stream.result is not None
        return thought, stream.result.thinking, stream.result.text

    with thinking_pipeline("deepseek", parallel=2) as pipeline:
        assert asyncio.run(answer()) == ("first then", "first then", ANSWERED)
