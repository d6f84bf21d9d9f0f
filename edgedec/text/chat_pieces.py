"""A chat template as pieces of text, for readers that cannot run Jinja.

The exporter writes ``tokenizer/chat_pieces.json`` where pieces give the template's own text. What
they say is for conversations as people have them: a system message or none, then a user and the
assistant in turns, and a user's message last. The template remains what edgedec itself renders.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgedec._support.fields import Fields, json_object
from edgedec.errors import BundleError, InputError
from edgedec.text.chat import check_messages

CHAT_PIECES = "chat_pieces.json"
MAX_PIECES_BYTES = 256 << 10
VERSION = 1
SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
ROLES = (SYSTEM, USER, ASSISTANT)


@dataclass(frozen=True, slots=True)
class Turn:
    """The text before and after a message."""

    open: str
    close: str


@dataclass(frozen=True, slots=True)
class ThinkEnd:
    """What earlier answers lose: all up to the last ``mark``, then ``drop`` as often as it comes.

    Attributes:
        mark: the text that ends an answer's thinking.
        drop: a character, or empty.

    """

    mark: str
    drop: str


@dataclass(frozen=True, slots=True)
class ChatPieces:
    """The pieces of a template.

    Attributes:
        bos: text in front of everything.
        roles: of user and assistant, and of system if the template takes such messages.
        generation: text after the last message, which begins the assistant's turn.
        default_system: of the system message in conversations without one; None if there is none.
        strip: roles whose messages lose white space at both ends, as by ``str.strip``.
        after_system: of the user's message right after a system message, where it differs.
        think_end: None if earlier answers stay as they are.

    """

    bos: str
    roles: Mapping[str, Turn]
    generation: str
    default_system: str | None = None
    strip: tuple[str, ...] = ()
    after_system: Turn | None = None
    think_end: ThinkEnd | None = field(default=None)

    @classmethod
    def parse(cls, data: bytes | str, where: str) -> ChatPieces:
        """Read ``chat_pieces.json``; BundleError if it is not as an exporter writes it."""
        raw = json_object(data)
        if raw is None:
            raise BundleError(f"{where} is not a JSON object: export the bundle again")
        fields = _PieceFields(raw, where)
        if fields.size("version") != VERSION:
            raise fields.wrong("version", str(VERSION))
        fields.only("version", *(f.name for f in dataclasses.fields(cls)))
        roles = fields.object("roles")
        roles.only(*ROLES)
        names = [name for name in ROLES if name in roles.raw or name != SYSTEM]
        strip = fields.texts("strip")
        if not set(strip) <= set(names):
            raise fields.wrong("strip", "a list of roles")
        default = fields.any_text("default_system") if fields.has("default_system") else None
        if default is not None and SYSTEM not in names:
            raise fields.wrong("default_system", "null without the role system")
        after = fields.object("after_system") if fields.has("after_system") else None
        think = fields.object("think_end") if fields.has("think_end") else None
        return cls(
            bos=fields.any_text("bos"),
            roles={name: _turn(roles.object(name)) for name in names},
            generation=fields.any_text("generation"),
            default_system=default,
            strip=strip,
            after_system=None if after is None else _turn(after),
            think_end=None if think is None else _think_end(think),
        )

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps({"version": VERSION, **dataclasses.asdict(self)}, indent=1) + "\n"

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the text of a conversation, ready for the assistant's turn.

        Raises:
            InputError: it is not a conversation that pieces are for.

        """
        turns = [(message["role"], message["content"]) for message in check_messages(messages)]
        self._check(turns)
        parts = [self.bos]
        system = turns[0][0] == SYSTEM
        if not system and self.default_system is not None:
            parts += self._message(self.roles[SYSTEM], self.default_system)
            system = True
        for index, (role, content) in enumerate(turns):
            turn = self.roles[role]
            first = role == USER and index <= 1
            if first and system and self.after_system is not None:
                turn = self.after_system
            parts += self._message(turn, self._content(role, content))
        return "".join([*parts, self.generation])

    def _message(self, turn: Turn, content: str) -> tuple[str, str, str]:
        return turn.open, content, turn.close

    def _content(self, role: str, content: str) -> str:
        if role == ASSISTANT and self.think_end is not None:
            _, mark, rest = content.rpartition(self.think_end.mark)
            content = rest.lstrip(self.think_end.drop) if mark and self.think_end.drop else rest
        return content.strip() if role in self.strip else content

    def _check(self, turns: Sequence[tuple[str, str]]) -> None:
        named = [role for role, _ in turns]
        if named[0] == SYSTEM and SYSTEM not in self.roles:
            raise InputError("messages[0]: this model takes no system message: leave it out")
        for index, role in enumerate(named[named[0] == SYSTEM :]):
            if role != (ASSISTANT if index % 2 else USER):
                found = ", ".join(named)[:100]
                raise InputError(f"messages: expected user and assistant in turns, found {found}")
        if named[-1] != USER:
            raise InputError("messages: expected a user's message last")
        for index, (_, content) in enumerate(turns):
            if not content.strip():
                raise InputError(f"messages[{index}]: expected some text, found none")


class _PieceFields(Fields):
    """Fields that are text and may be empty."""

    def any_text(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value


def _turn(fields: _PieceFields) -> Turn:
    fields.only("open", "close")
    return Turn(fields.any_text("open"), fields.any_text("close"))


def _think_end(fields: _PieceFields) -> ThinkEnd:
    fields.only("mark", "drop")
    drop = fields.any_text("drop")
    if len(drop) > 1:
        raise fields.wrong("drop", "a character, or none")
    return ThinkEnd(fields.text("mark"), drop)
