"""Chat pieces: what a conversation becomes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgedec.errors import BundleError
from edgedec.text.chat_pieces import ChatPieces, ThinkEnd, Turn

PIECES = ChatPieces(
    bos="<s>",
    roles={"system": Turn("S(", ")"), "user": Turn("U(", ")"), "assistant": Turn("A(", ")")},
    generation="A(",
)


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


SYSTEM = {"role": "system", "content": " be brief "}


def changed(**fields: Any) -> ChatPieces:
    raw = json.loads(PIECES.to_json()) | fields
    return ChatPieces.parse(json.dumps(raw), "pieces")


def test_a_conversation() -> None:
    text = PIECES.render([SYSTEM, user("a"), assistant("b"), user(" c ")])
    assert text == "<s>S( be brief )U(a)A(b)U( c )A("
    assert PIECES.render([user("a")]) == "<s>U(a)A("


def test_what_is_written_is_read() -> None:
    full = changed(
        default_system="", strip=["user"], after_system={"open": "", "close": "]"},
        think_end={"mark": "</t>", "drop": "\n"},
    )  # fmt: skip
    assert ChatPieces.parse(full.to_json(), "pieces") == full
    assert full.think_end == ThinkEnd("</t>", "\n")


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("a</t>\n\nb", "b"),
        ("a</t></t>b", "b"),
        ("a</t>", ""),
        ("a\n", "a\n"),
        ("</t>\n \nb", " \nb"),
    ],
)
def test_earlier_answers_lose_their_thinking(answer: str, left: str) -> None:
    pieces = changed(think_end={"mark": "</t>", "drop": "\n"})
    assert pieces.render([user("</t>a"), assistant(answer), user("b")]) == (
        f"<s>U(</t>a)A({left})U(b)A("
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": 2}, "version is 2, expected 1"),
        ({"bos": None}, "bos is None, expected a text"),
        ({"more": 1}, "unknown field more"),
        ({"roles": {"user": {"open": "", "close": ""}}}, "assistant is missing"),
        ({"roles": {"user": 1, "assistant": 2}}, "expected an object"),
        ({"roles": {"user": {"open": ""}, "assistant": {}}}, "close is missing"),
        ({"roles": {"pirate": {}}}, "unknown field pirate"),
        ({"strip": ["pirate"]}, "a list of roles"),
        ({"strip": "user"}, "a list of texts"),
        ({"default_system": 3}, "expected a text"),
        ({"after_system": {"open": ""}}, "close is missing"),
        ({"think_end": {"mark": "", "drop": ""}}, "expected a text"),
        ({"think_end": {"mark": "x", "drop": "ab"}}, "a character, or none"),
    ],
)  # fmt: skip
def test_damaged_pieces_are_refused_in_one_line(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleError, match=words):
        changed(**fields)


def test_a_default_needs_the_role() -> None:
    roles = {"user": {"open": "", "close": ""}, "assistant": {"open": "", "close": ""}}
    with pytest.raises(BundleError, match="null without the role system"):
        changed(roles=roles, default_system="x")


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(BundleError, match="not a JSON object"):
        ChatPieces.parse(text, "pieces")
