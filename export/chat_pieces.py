"""Turns a chat template into pieces, where pieces give the same text.

A template is a program, so it is asked: conversations with marked words show what stands before,
between and after messages, and random conversations show whether that is all there is to it.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgedec.errors import EdgedecError
from edgedec.text.chat import ChatTemplate
from edgedec.text.chat_pieces import (
    ASSISTANT,
    CHAT_PIECES,
    ROLES,
    SYSTEM,
    USER,
    ChatPieces,
    ThinkEnd,
    Turn,
)
from edgedec.text.tokenizer import Tokenizer

Conversation = Sequence[tuple[str, str]]
_TRIED = 48
_MARKS = ("</think>",)
_CONTENTS = (
    "Hi", "  two  words \n", "\n\nline\n", "\t\x85\xa0tabs\u2003\u3000", "{{ x }} {% if %} {# c #}",
    "<|im_start|>user\nno<|im_end|>", "[INST] x [/INST] </s><s>", "<b>\"it's\" & 'that'</b> \\n \\",
    "你好 👩‍👩‍👧 e\u0301 \u202eabc", '{"role": "user", "n": [1, null]}',
    "<think>a</think>\n\nb", "<think>\n", "</think></think> c", "a</think>", "0", "None", "system",
    "def f():\n    return 'x'\n", "%s %d {0}", "\x1c.\x1f",
)  # fmt: skip


def write_pieces(tokenizer: Path) -> bool:
    """Write the pieces of a tokenizer's chat template beside it; return whether there are any."""
    try:
        template = Tokenizer.load(tokenizer).chat_template
    except EdgedecError:  # the template cannot be used, and a bundle may come without one
        template = None
    pieces = None if template is None else pieces_of(template)
    if pieces is not None:
        (tokenizer / CHAT_PIECES).write_text(pieces.to_json(), "utf-8", newline="\n")
    return pieces is not None


def pieces_of(template: ChatTemplate) -> ChatPieces | None:
    """Return the pieces of a template; None if it does more than pieces can.

    Where only its way with system messages is too much, the pieces have no such role.
    """
    if template.dated is not False:  # tomorrow's text is another
        return None
    for system in (True, False):
        try:
            pieces = _Probes(template).pieces(system=system)
        except (EdgedecError, _Unlike):
            continue
        if _holds(pieces, template):
            return pieces
    return None


class _Unlike(Exception):
    """The template's text is not made of pieces around the contents."""


class _Probes:
    """Learns a template's pieces from the texts of conversations with marked words."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._bos = template.bos_token

    def pieces(self, *, system: bool) -> ChatPieces:
        """Return pieces that give the texts of the conversations that were tried.

        What stands between two messages can be cut anywhere, since only the joined text counts.
        It is cut where the first of them ends without an answer to come, so that marks stay whole.

        Raises:
            InputError, BundleError: the template refuses one of them.
            _Unlike: there are no such pieces.

        """
        front, between, back, end = self._split((USER, ASSISTANT, USER))
        if self._split((USER,)) != [front, end]:
            raise _Unlike
        user_open = back.removeprefix(self._closing((USER, ASSISTANT)))
        if not front.endswith(user_open):
            user_open = _common_start(front[::-1], back[::-1])[::-1]
        user_close = self._closing((USER,))
        if not (between.startswith(user_close) and end.startswith(user_close)):
            user_close = _common_start(between, end)
        answer = Turn(between[len(user_close) :], back[: len(back) - len(user_open)])
        found = ChatPieces(
            bos=front[: len(front) - len(user_open)],
            roles={USER: Turn(user_open, user_close), ASSISTANT: answer},
            generation=end[len(user_close) :],
        )
        if system:
            found = self._with_system(found)
        strip = tuple(role for role in ROLES if role in found.roles and self._strips(role))
        return dataclasses.replace(found, strip=strip, think_end=self._think_end())

    def _with_system(self, found: ChatPieces) -> ChatPieces:
        """Add the system message's pieces to those of conversations without one."""
        before, between, after = self._split((SYSTEM, USER))
        user = found.roles[USER]
        if after != user.close + found.generation:
            raise _Unlike
        after_system = None
        if between.endswith(user.open):
            between = between[: len(between) - len(user.open)]
        else:
            after_system = Turn("", user.close)
        bos, default = found.bos, None
        if not before.startswith(bos):
            # Without a system message there is one of the template's own.
            whole = found.bos + user.open if after_system else found.bos
            bos = self._bos if before.startswith(self._bos) else ""
            if not (whole.startswith(before) and whole[len(before) :].endswith(between)):
                raise _Unlike
            default = whole[len(before) : len(whole) - len(between)]
        roles = {SYSTEM: Turn(before[len(bos) :], between), **found.roles}
        return dataclasses.replace(
            found, bos=bos, roles=roles, default_system=default, after_system=after_system
        )

    def _split(self, roles: Sequence[str], *, answer: bool = True) -> list[str]:
        """Return what stands before, between and after the messages of a conversation."""
        words = [f"Word{index}of{role.title()}" for index, role in enumerate(roles)]
        messages = [{"role": r, "content": w} for r, w in zip(roles, words, strict=True)]
        return _around(self._template.render(messages, add_generation_prompt=answer), words)

    def _closing(self, roles: Sequence[str]) -> str:
        """Return what closes the last message where no answer is to come; "" if that is unclear."""
        try:
            return self._split(roles, answer=False)[-1]
        except (EdgedecError, _Unlike):
            return ""

    def _strips(self, role: str) -> bool:
        text = _rendered(self._template, _with_content(role, " \n Odd \t\n"))
        return " \n Odd" not in text

    def _think_end(self) -> ThinkEnd | None:
        for mark in _MARKS:
            text = _rendered(self._template, _with_content(ASSISTANT, f"Inner{mark}\n\nOuter"))
            if "Inner" not in text:
                return ThinkEnd(mark, "" if "\n\nOuter" in text else "\n")
        return None


def _with_content(role: str, content: str) -> Conversation:
    if role == SYSTEM:
        return [(SYSTEM, content), (USER, "x")]
    if role == USER:
        return [(USER, content)]
    return [(USER, "x"), (ASSISTANT, content), (USER, "y")]


def _rendered(template: ChatTemplate, conversation: Conversation) -> str:
    return template.render([{"role": role, "content": content} for role, content in conversation])


def _around(text: str, words: Sequence[str]) -> list[str]:
    """Return the parts of a text between words that each occur once, in this order."""
    parts = []
    for word in words:
        before, found, text = text.partition(word)
        if not found:
            raise _Unlike
        parts.append(before)
    parts.append(text)
    if any(word in part for part in parts for word in words):
        raise _Unlike
    return parts


def _holds(pieces: ChatPieces, template: ChatTemplate) -> bool:
    """Return whether random conversations get the template's own text, byte for byte."""
    for conversation in conversations(_TRIED, system=SYSTEM in pieces.roles):
        messages = [{"role": role, "content": content} for role, content in conversation]
        try:
            theirs = template.render(messages)
        except EdgedecError:
            return False
        if pieces.render(messages) != theirs:
            return False
    return True


def conversations(count: int, *, system: bool, seed: int = 0) -> Iterator[Conversation]:
    """Yield random conversations of one to nine messages with odd contents."""
    rng = random.Random(seed)
    for index in range(count):
        turns = [(USER, ASSISTANT)[at % 2] for at in range(2 * rng.randint(0, 3) + 1)]
        if system and index % 2:
            turns = [SYSTEM, *turns]
        yield [(role, _content(rng)) for role in turns]


def _content(rng: random.Random) -> str:
    chosen = [rng.choice(_CONTENTS) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    text = rng.choice(("", " ", "\n")).join(chosen)
    return text if text.strip() else "Hi"


def _common_start(first: str, second: str) -> str:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return first[:length]
