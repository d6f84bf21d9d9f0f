"""Stop strings that name special tokens, and special tokens that are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import tiny_tokenizers
from thinking_models import MANNERS
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from edgedec.decoding.stopping import StopRule
from edgedec.serve.calls import NAMES
from edgedec.text.special_text import special_text
from edgedec.text.thinking import Splitter, marks_of
from edgedec.text.tokenizer import Tokenizer

SPECIAL = ("<|im_end|>", "<|im|>", "<|im_end|>x", "</s>")


@pytest.fixture(scope="module", params=["byte_level", "llama"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    backend = Backend.from_str(getattr(tiny_tokenizers, request.param)().to_str())
    backend.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in SPECIAL]
    )
    return Tokenizer(backend, {})


def ended(
    tokenizer: Tokenizer, parts: Sequence[str], stops: Sequence[str], shown: Sequence[str] = ()
) -> tuple[str, str | None]:
    """The text of special tokens and of other texts, and why it ended."""
    asked = special_text(tokenizer, stops, shown)
    rule = StopRule(
        max_new_tokens=1000, stop_strings=asked.stops, hidden=asked.hidden,
        stream=tokenizer.stream([5], asked.shown),
    )  # fmt: skip
    pieces = ""
    for part in parts:
        tokens = [tokenizer.token_id(part)] if part in SPECIAL else []
        for token in tokens or spelled(tokenizer, part):
            pieces += "".join(rule.cut([token])[1])
    reason = rule.reason
    text = rule.finish()
    assert text.startswith(pieces)
    assert all(not 0xFDD0 <= ord(char) <= 0xFDEF for char in text)
    return text, reason


def spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ordinary tokens of a text, also where it has a special token's name."""
    return [id for char in text for id in tokenizer.encode(char, add_special_tokens=False)
            if tokenizer.written(id) not in ("", "▁")]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "stops", "text", "reason"),
    [
        (["ab", "<|im_end|>", "cd"], ["<|im_end|>"], "ab", "stop"),
        (["ab", "<|im|>", "cd"], ["<|im|>", "zz"], "ab", "stop"),
        # A part of the stop string.
        (["ab", "<|im_end|>", "cd"], ["b<|im_end|>"], "a", "stop"),
        (["ab", "<|im_end|>", "cd"], ["<|im_end|>c"], "ab", "stop"),
        (["ab", "<|im_end|>", "cd"], ["b<|im_end|>c"], "a", "stop"),
        (["ab", "<|im_end|>", "<|im|>", "cd"], ["<|im_end|><|im|>"], "ab", "stop"),
        # A name within another's.
        (["ab", "<|im_end|>x", "cd"], ["<|im_end|>x"], "ab", "stop"),
        # Spelled by ordinary tokens.
        (["ab<|im_end|>cd"], ["<|im_end|>"], "ab", "stop"),
        (["ab", "<|im_end|>", "cd"], ["<|im|>"], "abcd", None),
        (["ab", "<|im_end|>", "cd"], ["<|im_end|>d"], "abcd", None),  # held back, and never shown
        (["ab", "<|im_end|>"], ["<|im_end|>d"], "ab", None),
        (["ab", "<|im_end|>", "cd"], ["im_end"], "abcd", None),
        (["ab", "<|im_end|>", "cd"], [], "abcd", None),
    ],
)
def test_it_ends_there(
    tokenizer: Tokenizer, parts: list[str], stops: list[str], text: str, reason: str | None
) -> None:
    """Or it goes on, and shows no mark."""
    assert ended(tokenizer, parts, stops) == (text, reason)


def test_names_that_are_shown(tokenizer: Tokenizer) -> None:
    parts = ["ab", "<|im_end|>", "</s>", "cd"]
    assert ended(tokenizer, parts, [], ["<|im_end|>", "no token"]) == ("ab<|im_end|>cd", None)
    assert ended(tokenizer, parts, ["</s>"], ["<|im_end|>"]) == ("ab<|im_end|>", "stop")
    assert ended(tokenizer, parts, []) == ("abcd", None)  # the control


def test_a_call_of_harmony_begins_with_whom_it_is_for() -> None:
    tokenizer = MANNERS["harmony"].tokenizer()
    marks = marks_of(tokenizer)
    assert marks is not None
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    header = "<|channel|>commentary to=functions.weather json<|message|>"
    tokens = tokenizer.encode(header + '{"a": 1}', add_special_tokens=False)
    for shown, text in (
        (["<|channel|>"], '<|channel|>to=functions.weather<|message|>{"a": 1}'),
        ([], '{"a": 1}'),  # the control
    ):
        splitter = Splitter(tokenizer, marks, prompt, special_text(tokenizer, (), shown).shown)
        assert "".join(map(splitter.push, tokens)) + splitter.flush() == text


def test_marks_within_a_call_of_gemma_are_shown() -> None:
    special = ("<|tool_call>", "<tool_call|>", '<|"|>')
    manner = MANNERS["gemma"]
    tokenizer = replace(manner, special=(*manner.special, *special)).tokenizer()
    marks = marks_of(tokenizer)
    assert marks is not None
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    call = '<|tool_call>call:weather{city:<|"|>Oslo<|"|>}<tool_call|>'
    tokens = tokenizer.encode("<|channel>thought\n so<channel|>" + call, add_special_tokens=False)
    for shown, text in ((NAMES, call), ([], "call:weather{city:Oslo}")):
        splitter = Splitter(tokenizer, marks, prompt, special_text(tokenizer, (), shown).shown)
        assert "".join(map(splitter.push, tokens)) + splitter.flush() == text
        assert splitter.thinking == "so"


def test_a_stop_string_within_the_thinking() -> None:
    tokenizer = MANNERS["harmony"].tokenizer()
    marks = marks_of(tokenizer)
    assert marks is not None
    prompt = tokenizer.encode_chat([{"role": "user", "content": "Hi"}])
    asked = special_text(tokenizer, ["<|end|>"])
    splitter = Splitter(tokenizer, marks, prompt, asked.shown)
    rule = StopRule(
        max_new_tokens=99, stop_strings=asked.stops, hidden=asked.hidden, stream=splitter
    )
    rule.cut(
        tokenizer.encode("<|channel|>analysis<|message|> first<|end|>", add_special_tokens=False)
    )
    assert rule.reason == "stop"
    assert splitter.thinking == "first"
