"""Recognises how a model marks its thinking, and tells thinking from answer token by token.

Three manners are known: text between tags, which the model opens itself (Qwen3) or the template
opens for it (DeepSeek-R1); such tags with a label after the first one (Gemma 4); and harmony's
channels (gpt-oss), whose messages have a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from edgedec.text.tokenizer import Tokenizer

# Tags, and what stands between the first one and the thinking.
TAGS = (
    ("<think>", "</think>", ""),
    ("[THINK]", "[/THINK]", ""),
    ("<|channel>", "<channel|>", "thought\n"),
)
START_MARK, CHANNEL, MESSAGE, END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
_ANALYSIS, _FINAL = "analysis", f"{START_MARK}assistant{CHANNEL}final{MESSAGE}"
# What stands between the end of the thinking and the answer, as templates write it.
_GAP = "\n\n"
# Whom a message of harmony is for.
_CALLED = re.compile(r"to=functions\.[\w.-]+")
_SPACE = " \t\r\n"
# Tokens at a prompt's end in which a mark is looked for, and characters of a message's header.
_TAIL_TOKENS, _MOST_HEADER = 32, 256


class Phase(Enum):
    """The part of an assistant's turn that comes next."""

    START = "start"
    HEADER = "header"
    THINKING = "thinking"
    ANSWER = "answer"


class Place(NamedTuple):
    """A position in an assistant's turn.

    Attributes:
        phase: of what comes next.
        held: text that decides the phase together with what follows.

    """

    phase: Phase
    held: str = ""


Piece = tuple[Phase, str]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of a model's marks.

    Attributes:
        ids: tokens that are marks by themselves, with their names. Empty if the model spells its
            marks with several tokens; they are then found in the text.
        opening: the token that begins a turn with thinking; None without ``ids``.
        always: whether every turn begins with that token.
        close: tokens that end the thinking.
        gap: tokens between ``close`` and the answer.

    """

    ids: dict[int, str]
    opening: int | None
    always: bool
    close: tuple[int, ...]
    gap: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tags(_Tokens):
    """Thinking between two tags, at the beginning of a turn."""

    open_tag: str
    close_tag: str
    label: str = ""

    def begin(self, tail: str) -> Place:
        """Return where a turn begins, after a prompt that ends with this text."""
        known = tail.rstrip(_SPACE)
        if known.endswith(self.open_tag):
            return self._opened()
        opened = bool(self.label) and known.endswith(self.open_tag + self.label.rstrip(_SPACE))
        return Place(Phase.THINKING if opened else Phase.START)

    def _opened(self) -> Place:
        return Place(Phase.HEADER if self.label else Phase.THINKING)

    def read(self, place: Place, text: str, *, mark: bool = False) -> tuple[Place, list[Piece]]:
        """Return the place after a piece of text, and what it adds to thinking and answer.

        Args:
            text: any piece; the name of a mark with ``mark``.
            mark: whether it is one of ``ids``.

        """
        if mark and place.phase is Phase.START and text == self.open_tag:
            return self._opened(), []
        inside = place.phase in (Phase.HEADER, Phase.THINKING)
        if mark and inside and text == self.close_tag:
            return Place(Phase.ANSWER), []
        if place.phase is Phase.HEADER:
            return self._labelled(place.held + text)
        if place.phase is Phase.START:
            return self._start(place.held + text)
        if place.phase is Phase.THINKING and not self.ids:
            return self._thought(place.held + text)
        return place, [(place.phase, text)]

    def _labelled(self, known: str) -> tuple[Place, list[Piece]]:
        if self.label.startswith(known) and known != self.label:
            return Place(Phase.HEADER, known), []
        return Place(Phase.THINKING), [(Phase.THINKING, known.removeprefix(self.label))]

    def _start(self, known: str) -> tuple[Place, list[Piece]]:
        begun = known.lstrip(_SPACE)
        if not self.ids and begun.startswith(self.open_tag):
            return self._thought(begun[len(self.open_tag) :])
        if not begun or (not self.ids and self.open_tag.startswith(begun)):
            return Place(Phase.START, known), []
        return Place(Phase.ANSWER), [(Phase.ANSWER, known)]

    def _thought(self, known: str) -> tuple[Place, list[Piece]]:
        thought, found, answer = known.partition(self.close_tag)
        if found:
            return Place(Phase.ANSWER), [(Phase.THINKING, thought), (Phase.ANSWER, answer)]
        most = min(len(known), len(self.close_tag) - 1)
        kept = next((n for n in range(most, 0, -1) if self.close_tag.startswith(known[-n:])), 0)
        cut = len(known) - kept
        return Place(Phase.THINKING, known[cut:]), [(Phase.THINKING, known[:cut])]


@dataclass(frozen=True, slots=True)
class Harmony(_Tokens):
    """Messages with headers that name a channel, of which ``analysis`` is thinking."""

    def begin(self, tail: str) -> Place:
        header = tail[tail.rfind(START_MARK) :] if START_MARK in tail else ""
        if MESSAGE in header:
            return Place(_named(header[: header.index(MESSAGE)]))
        return Place(Phase.START)

    def read(self, place: Place, text: str, *, mark: bool = False) -> tuple[Place, list[Piece]]:
        if mark:
            return self._marked(place, text), []
        if place.phase is Phase.HEADER and len(place.held) < _MOST_HEADER:
            return Place(Phase.HEADER, place.held + text), []
        if place.phase in (Phase.START, Phase.HEADER):
            return Place(Phase.ANSWER), [(Phase.ANSWER, place.held + text)]
        return place, [(place.phase, text)]

    def _marked(self, place: Place, mark: str) -> Place:
        if mark == MESSAGE:
            return Place(_named(place.held)) if place.phase is Phase.HEADER else place
        if mark == END:
            return Place(Phase.HEADER)
        return Place(Phase.HEADER, (place.held if place.phase is Phase.HEADER else "") + mark)


Marks = Tags | Harmony
_KNOWN: WeakKeyDictionary[Tokenizer, Marks | None] = WeakKeyDictionary()


def _named(header: str) -> Phase:
    words = header.rpartition(CHANNEL)[2].split() if CHANNEL in header else []
    return Phase.THINKING if words[:1] == [_ANALYSIS] else Phase.ANSWER


def marks_of(tokenizer: Tokenizer) -> Marks | None:
    """Return how a model marks its thinking, by its template and tokens; None if it does not."""
    if tokenizer not in _KNOWN:
        _KNOWN[tokenizer] = _found(tokenizer)
    return _KNOWN[tokenizer]


def _found(tokenizer: Tokenizer) -> Marks | None:
    template = tokenizer.chat_template
    if template is None:
        return None
    names = START_MARK, CHANNEL, MESSAGE, END
    ids = {tokenizer.token_id(name): name for name in names}
    if None not in ids and template.marks(CHANNEL, END):
        known = {token: name for token, name in ids.items() if token is not None}
        gap = tokenizer.encode(_FINAL, add_special_tokens=False)
        by_name = {name: token for token, name in known.items()}
        return Harmony(known, by_name[CHANNEL], True, (by_name[END],), tuple(gap))
    for opens, closes, label in TAGS:
        first, last = tokenizer.token_id(opens), tokenizer.token_id(closes)
        if first is not None and last is not None:
            after = closes if label else closes + _GAP
            written = tokenizer.encode(after, add_special_tokens=False)
            gap = written[written.index(last) + 1 :] if last in written else []
            named = {first: opens, last: closes}
            return Tags(named, first, False, (last,), tuple(gap), opens, closes, label)
        if not label and template.marks(opens, closes):
            close = tokenizer.encode(closes, add_special_tokens=False)
            return Tags({}, None, False, tuple(close), (), opens, closes)
    return None


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return tokens as text in which special ones are shown, and other bytes are characters."""
    return b"".join(map(tokenizer.bytes_of, tokens)).decode("latin-1")


def begin(tokenizer: Tokenizer, marks: Marks, prompt: Sequence[int]) -> Place:
    """Return where the turn after a prompt begins."""
    return marks.begin(text_of(tokenizer, prompt[-_TAIL_TOKENS:]))


class Splitter:
    """A detokeniser whose text is the answer, and which keeps the thinking apart.

    White space around the thinking, and in front of an answer after it, is neither's.

    Args:
        prompt: the conversation, ready for the assistant's turn.
        shown: texts of special tokens, see ``Tokenizer.stream``. With one of harmony's channels
            a call begins with whom it is for.

    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        marks: Marks,
        prompt: Sequence[int],
        shown: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._tokenizer, self._marks, self._prompt = tokenizer, marks, prompt
        self._shown_tokens = shown
        self._place = begin(tokenizer, marks, prompt)
        self._stream = tokenizer.stream(prompt)
        self._gap, self._answered = "", False
        self._thought = self._place.phase is Phase.THINKING
        self._taken: list[str | None] = []
        self.thinking = ""

    def push(self, token: int) -> str:
        """Return the answer's text that this token completes; often nothing."""
        before, known = self._place.phase, len(self.thinking)
        name = self._marks.ids.get(token)
        if name is not None:
            answer = self._marked(token, name)
        elif (shown := self._shown_tokens.get(token)) is not None:  # never part of the thinking
            answer = self._read(self._stream.flush()) + shown
        else:
            answer = self._read(self._stream.push(token))
        apart = before is not Phase.ANSWER
        if apart and self._place.phase is Phase.ANSWER:
            apart = self._thought
        self._taken.append(self.thinking[known:] if apart else None)
        return answer

    def flush(self) -> str:
        """Return the answer's text that was held back; the turn ends here."""
        known = len(self.thinking)
        answer = self._read(self._stream.flush())
        place, self._place = self._place, Place(self._place.phase)
        if place.phase in (Phase.START, Phase.THINKING):  # a header is neither's
            phase = Phase.ANSWER if place.phase is Phase.START else place.phase
            answer += self._shown([(phase, place.held)])
        if thought := self.thinking[known:]:
            last = self._taken.pop() if self._taken else None
            self._taken.append((last or "") + thought)
        return answer

    def take(self) -> list[str | None]:
        """Return the thinking that each token since the last call added; None: the answer's."""
        taken, self._taken = self._taken, []
        return taken

    def _marked(self, token: int, name: str) -> str:
        answer = self._read(self._stream.flush())
        self._stream = self._tokenizer.stream(self._prompt)
        to = _CALLED.search(self._place.held) if name == MESSAGE else None
        place, pieces = self._marks.read(self._place, name, mark=True)
        self._move(place)
        if token in self._tokenizer.special_ids:
            pieces = []
        if to is not None and CHANNEL in self._shown_tokens.values():
            pieces = [(Phase.ANSWER, f"{CHANNEL}{to[0]}{MESSAGE}")]
        elif (text := self._shown_tokens.get(token, name)) != name:
            pieces = [(Phase.ANSWER, text)]  # stands for it in a stop string
        return answer + self._shown(pieces)

    def _read(self, text: str) -> str:
        if not text:
            return ""
        place, pieces = self._marks.read(self._place, text)
        self._move(place)
        return self._shown(pieces)

    def _move(self, place: Place) -> None:
        self._place = place
        self._thought = self._thought or place.phase is Phase.THINKING

    def _shown(self, pieces: Sequence[Piece]) -> str:
        """Add the pieces of the thinking to it; return those of the answer."""
        answer = ""
        for phase, text in pieces:
            if phase is Phase.THINKING:
                self._thought = True
                known = self._gap + text if self.thinking else text.lstrip(_SPACE)
                thought = known.rstrip(_SPACE)
                self._gap = known[len(thought) :]
                self.thinking += thought
            else:
                trimmed = self._thought and not self._answered
                answer += text.lstrip(_SPACE) if trimmed and not answer else text
        self._answered = self._answered or bool(answer)
        return answer
