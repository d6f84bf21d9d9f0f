"""Vectors of chat pieces: the template's own texts of conversations, and those that are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from edgedec.errors import InputError
from edgedec.export.chat_pieces import conversations, pieces_of
from edgedec.text.chat_pieces import VERSION, ChatPieces
from tools.vectors.samples import SAMPLES, Sample

_RENDERED = 8
Messages = list[dict[str, str]]

_ODD = (
    [
        ("user", " \n Hi \t\n"),
        ("assistant", "\u2003<think>\nWell\n</think>\n\nHello \x85"),
        ("user", "\x1cBye"),
    ],
    [("user", "</think>\na"), ("assistant", "b</think></think> c"), ("user", "</think>")],
)
# By roles; the contents are letters.
_REFUSED = (
    ("assistant",), ("user", "user"), ("user", "assistant"), ("system",),
    ("user", "system", "user"),
    ("system", "system", "user"), ("system", "assistant"), ("user", "tool", "user"),
    ("user", "assistant", "assistant", "user"), ("User",),
)  # fmt: skip
_BLANK = ("", " ", "\n\t", "\x85\u2003\u3000")


def make() -> dict[str, Any]:
    """Return ``chat.json``."""
    found = []
    for name, sample in SAMPLES.items():
        pieces = pieces_of(sample.template)
        if pieces is not None:
            written = {"version": VERSION, **dataclasses.asdict(pieces)}
            found.append({"name": name, "pieces": written, "cases": _cases(sample, pieces)})
    return {"pieces": found}


def _cases(sample: Sample, pieces: ChatPieces) -> list[dict[str, Any]]:
    """Return conversations with the template's text, then those that a reader refuses."""
    system = "system" in pieces.roles
    rendered = [
        {"messages": messages, "text": sample.template.render(messages)}
        for messages in _talks(system=system)
    ]
    refused = list(_refused(system=system))
    for messages in refused:
        try:
            pieces.render(messages)
        except InputError:
            continue
        raise AssertionError(f"expected a refusal of {messages}")
    return [*rendered, *({"messages": messages, "refused": True} for messages in refused)]


def _talks(*, system: bool) -> Iterator[Messages]:
    for conversation in [*_ODD, *conversations(_RENDERED, system=system, seed=7)]:
        yield [{"role": role, "content": content} for role, content in conversation]


def _refused(*, system: bool) -> Iterator[Messages]:
    for roles in _REFUSED:
        yield [{"role": role, "content": "abcd"[at]} for at, role in enumerate(roles)]
    if not system:
        yield [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    for content in _BLANK:
        yield [{"role": "user", "content": content}]
