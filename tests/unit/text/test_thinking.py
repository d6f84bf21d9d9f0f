"""A turn's tokens are told apart into thinking and answer, however a model marks its thinking."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from thinking_models import HARMONY, MANNERS, QWEN, Manner

from edgedec.text.chat import ChatTemplate, thinking
from edgedec.text.thinking import Harmony, Phase, Place, Splitter, Tags, begin, marks_of
from edgedec.text.tokenizer import Tokenizer

QUESTION = [{"role": "user", "content": "Hi"}]
# What the model writes in a turn, its thinking, and its answer.
TAGGED = [
    ("<think>\nfirst then\n</think>\n\nThe answer", "first then", "The answer"),
    ("<think>first < 2 </ th\n\n  so</think>42", "first < 2 </ th\n\n  so", "42"),
    ("\n <think>\n\n</think>\n\nThe answer ", "", "The answer "),
    ("<think>é 思 first", "é 思 first", ""),
    ("  The answer <think>is</think> 42", "", "  The answer <think>is</think> 42"),
    ("<thin The answer", "", "<thin The answer"),
    ("", "", ""),
    ("<think>a</think>\n\nThe <think>b</think> answer", "a", "The <think>b</think> answer"),
]
# Cut in the middle of a tag, where that is more than one token.
CUT = [("<think>\nfirst </thi", "first </thi", ""), ("<thi", "", "<thi")]
LABELLED = [
    ("<|channel>thought\nfirst then\n<channel|>The answer", "first then", "The answer"),
    ("<|channel>thought\n<channel|>The answer", "", "The answer"),
    ("<|channel><channel|>The answer", "", "The answer"),
    ("<|channel>thought\nthought\n so", "thought\n so", ""),
    ("<|channel>though", "", ""),
    ("<|channel>so\nfirst<channel|>The answer", "so\nfirst", "The answer"),
    ("The answer", "", "The answer"),
]
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
CHANNELS = [
    (
        f"{ANALYSIS}first then{FINAL}The answer",
        "first then",
        "The answer",
    ),
    ("<|channel|>final<|message|>The answer", "", "The answer"),
    ("<|channel|>analysis<|message|>first", "first", ""),
    ("<|channel|>analysis<|message|>first<|end|><|start|>assistant<|chan", "first", ""),
    (
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}",
        "",
        "{}",
    ),
    (
        f"{ANALYSIS}first<|end|><|start|>assistant{ANALYSIS} then<|end|><|message|>The answer",
        "first then",
        "The answer",
    ),
    ("The answer", "", "The answer"),
]


def split(tokenizer: Tokenizer, written: str, prompt: str = "x") -> tuple[str, str]:
    """Thinking and answer, both put together from what each token adds."""
    marks = marks_of(tokenizer)
    assert marks is not None
    reader = Splitter(tokenizer, marks, tokenizer.encode(prompt))
    thought, answer = "", ""
    for token in tokenizer.encode(written, add_special_tokens=False):
        answer += reader.push(token)
        thought += "".join(part or "" for part in reader.take())
    answer += reader.flush()
    thought += "".join(part or "" for part in reader.take())
    assert thought == reader.thinking
    return thought, answer


@pytest.mark.parametrize("manner", ["qwen", "spelled"])
@pytest.mark.parametrize(("written", "thought", "answer"), TAGGED)
def test_tags(manner: str, written: str, thought: str, answer: str) -> None:
    assert split(MANNERS[manner].tokenizer(), written) == (thought, answer)


@pytest.mark.parametrize(("written", "thought", "answer"), CUT)
def test_half_a_tag_at_the_end(written: str, thought: str, answer: str) -> None:
    assert split(MANNERS["spelled"].tokenizer(), written) == (thought, answer)


@pytest.mark.parametrize(("written", "thought", "answer"), LABELLED)
def test_tags_with_a_label(written: str, thought: str, answer: str) -> None:
    assert split(MANNERS["gemma"].tokenizer(), written) == (thought, answer)


@pytest.mark.parametrize("tail", ["<|channel>", "<|channel>thought\n", "<|channel>thought\n so"])
def test_a_template_may_open_labelled_thinking(tail: str) -> None:
    """The control: what is not a label alone opens nothing."""
    tokenizer = MANNERS["gemma"].tokenizer()
    written = "thought\nfirst<channel|>The answer" if tail == "<|channel>" else "first<channel|>42"
    thought, answer = split(tokenizer, written, f"x{tail}")
    if tail.endswith(" so"):
        assert (thought, answer) == ("", "first42")
    else:
        assert thought == "first"
        assert answer in ("The answer", "42")
    assert split(tokenizer, "The answer", "x<|channel>thought\n<channel|>") == ("", "The answer")


@pytest.mark.parametrize(("written", "thought", "answer"), CHANNELS)
def test_channels(written: str, thought: str, answer: str) -> None:
    assert split(MANNERS["harmony"].tokenizer(), written) == (thought, answer)


@pytest.mark.parametrize("manner", ["deepseek", "spelled"])
def test_a_template_may_open_the_thinking(manner: str) -> None:
    tokenizer = MANNERS[manner].tokenizer()
    found = split(tokenizer, " first then</think>\n\nThe answer", "x<think>\n")
    assert found == ("first then", "The answer")
    closed = split(tokenizer, "The answer", "x<think>\n\n</think>\n\n")
    assert closed == ("", "The answer")


def test_special_tokens_as_tags_are_no_text() -> None:
    special = replace(MANNERS["qwen"], tokens=("<|turn|>",), special=("<think>", "</think>"))
    tokenizer = special.tokenizer()
    assert split(tokenizer, "<think>first</think>The answer") == ("first", "The answer")
    assert split(tokenizer, "The <think> answer") == ("", "The  answer")


def test_the_name_of_a_tag_in_other_tokens_is_none() -> None:
    tokenizer = MANNERS["qwen"].tokenizer()
    reader = Splitter(tokenizer, marks_of(tokenizer), tokenizer.encode("x"))  # type: ignore[arg-type]
    spelled = [t for piece in ("</", "think", ">") for t in tokenizer.encode(piece)]
    open_tag = tokenizer.token_id("<think>")
    answer = "".join(reader.push(token) for token in [open_tag, *spelled] if token is not None)
    assert (answer, reader.thinking) == ("", "</think>")


def test_half_a_character_before_a_mark_is_not_lost() -> None:
    tokenizer = MANNERS["qwen"].tokenizer()
    marks = marks_of(tokenizer)
    assert marks is not None
    half = tokenizer.encode("思")[0]
    assert len(tokenizer.bytes_of(half)) < 3
    reader = Splitter(tokenizer, marks, tokenizer.encode("x<think>"))
    tokens = [*tokenizer.encode("so"), half, *tokenizer.encode("</think>The")]
    assert "".join(map(reader.push, tokens)) + reader.flush() == "The"
    assert reader.thinking == "so\ufffd"


def test_a_header_without_an_end_is_the_answer() -> None:
    tokenizer = MANNERS["harmony"].tokenizer()
    written = "word " * 100
    assert split(tokenizer, f"<|channel|>{written}")[1].endswith(written)


def test_any_tokens_give_the_same_parts() -> None:
    """Tags that are spelled are found wherever tokens begin and end."""
    tokenizer, rng = MANNERS["spelled"].tokenizer(), random.Random(0)
    marks = marks_of(tokenizer)
    assert isinstance(marks, Tags)
    for written, thought, answer in [*TAGGED, *CUT]:
        for _ in range(20):
            place, parts = Place(Phase.START), {Phase.THINKING: "", Phase.ANSWER: ""}
            left = written
            while left:
                size = rng.randint(1, 9)
                place, pieces = marks.read(place, left[:size])
                left = left[size:]
                for phase, text in pieces:
                    parts[phase] += text
            last = Phase.ANSWER if place.phase is Phase.START else place.phase
            parts[last] += place.held
            assert parts[Phase.THINKING].strip() == thought
            assert parts[Phase.ANSWER].strip() == answer.strip()


def test_a_reader_that_holds_nothing_back_would_be_noticed() -> None:
    class Hasty(Tags):
        def read(self, place: Place, text: str, *, mark: bool = False) -> object:  # type: ignore[override]
            found, pieces = super().read(Place(place.phase), text, mark=mark)
            return Place(found.phase), [*pieces, (place.phase, found.held)]

    tokenizer = MANNERS["spelled"].tokenizer()
    marks = marks_of(tokenizer)
    assert isinstance(marks, Tags)
    hasty = Hasty(marks.ids, None, False, marks.close, marks.gap, "<think>", "</think>")
    reader = Splitter(tokenizer, hasty, tokenizer.encode("x<think>"))
    answer = "".join(map(reader.push, tokenizer.encode("first</think>The answer")))
    assert (reader.thinking, answer) != ("first", "The answer")


def test_tokens_are_counted_by_part() -> None:
    tokenizer = MANNERS["qwen"].tokenizer()
    marks = marks_of(tokenizer)
    assert marks is not None
    reader = Splitter(tokenizer, marks, tokenizer.encode("x"))
    written = "<think> first then</think>\n\nThe answer"
    for token in tokenizer.encode(written):
        reader.push(token)
    assert reader.take() == ["", "first", " then", "", None, None, None]
    for token in tokenizer.encode("The answer", add_special_tokens=False):
        reader.push(token)
    assert reader.take() == [None, None]


@pytest.mark.parametrize(
    ("manner", "kind", "whole"),
    [("qwen", Tags, True), ("deepseek", Tags, True), ("spelled", Tags, False),
     ("gemma", Tags, True), ("harmony", Harmony, True)],
)  # fmt: skip
def test_marks_are_recognised(manner: str, kind: type, whole: bool) -> None:
    marks = marks_of(MANNERS[manner].tokenizer())
    assert isinstance(marks, kind)
    assert bool(marks.ids) == whole


def test_other_templates_have_no_thinking() -> None:
    plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
    for manner in ("spelled", "harmony"):
        assert marks_of(replace(MANNERS[manner], template=plain).tokenizer()) is None
    # Channels whose names are not tokens are none.
    unknown = Manner(HARMONY, "", "", "", "", ())
    assert marks_of(unknown.tokenizer()) is None


def test_where_a_turn_begins() -> None:
    for manner, phase in (("qwen", Phase.START), ("deepseek", Phase.THINKING),
                          ("gemma", Phase.START), ("harmony", Phase.START)):  # fmt: skip
        tokenizer = MANNERS[manner].tokenizer()
        marks = marks_of(tokenizer)
        assert marks is not None
        assert begin(tokenizer, marks, tokenizer.encode_chat(QUESTION)).phase is phase
    tokenizer = MANNERS["harmony"].tokenizer()
    prefilled = tokenizer.encode("<|start|>assistant<|channel|>analysis<|message|>so")
    assert begin(tokenizer, marks_of(tokenizer), prefilled).phase is Phase.THINKING  # type: ignore[arg-type]


def test_the_switch_of_a_template() -> None:
    assert ChatTemplate(QWEN).switches_thinking
    assert ChatTemplate(QWEN.replace("enable_thinking", "thinking")).switches_thinking
    assert not ChatTemplate(HARMONY).switches_thinking
    assert not ChatTemplate("{{ raise_exception('no') }}").switches_thinking
    off = ChatTemplate(QWEN).render(QUESTION, variables=thinking(False))
    assert off.endswith("<think>\n\n</think>\n\n")
    assert (
        ChatTemplate(HARMONY)
        .render(QUESTION, variables=thinking(None, "high"))
        .startswith("<|start|>system<|message|>Reasoning: high")
    )


def test_variables_do_not_replace_the_messages() -> None:
    found = ChatTemplate(QWEN).render(QUESTION, variables={"messages": [], "bos_token": "no"})
    assert "Hi" in found


def test_a_template_reads_the_thinking_by_either_name() -> None:
    answer = {"role": "assistant", "content": "42", "reasoning_content": "so"}
    for name in ("reasoning_content", "thinking"):
        source = "{% for m in messages %}{{ m." + name + " }}{% endfor %}"
        assert ChatTemplate(source).render([answer]) == "so"
