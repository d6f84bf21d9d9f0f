"""How a bundle writes conversations: a Jinja template, and pieces for readers without Jinja."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec._support.fields import json_object
from edgedec.bundle.folder import Bundle
from edgedec.text.chat_pieces import CHAT_PIECES, MAX_PIECES_BYTES, ChatPieces
from edgedec.text.tokenizer import CONFIG, MAX_CONFIG_BYTES, TEMPLATE


@dataclass(frozen=True, slots=True)
class Chat:
    """What there is.

    Attributes:
        template: whether the tokenizer's files contain a chat template.
        pieces: of that template, or None.

    """

    template: bool
    pieces: ChatPieces | None

    @classmethod
    def of(cls, bundle: Bundle) -> Chat:
        """Read the files of the target's tokenizer; BundleError if one of them is damaged."""
        folder = bundle.target.tokenizer.relative_to(bundle.path)
        pieces_file = (folder / CHAT_PIECES).as_posix()
        data = bundle.read(pieces_file, MAX_PIECES_BYTES)
        pieces = None if data is None else ChatPieces.parse(data, str(bundle.path / pieces_file))
        template = (folder / TEMPLATE).as_posix() in bundle.files
        if not template:
            config = bundle.read((folder / CONFIG).as_posix(), MAX_CONFIG_BYTES)
            template = bool((json_object(config or b"{}") or {}).get("chat_template"))
        return cls(template, pieces)

    def describe(self) -> str:
        """Return it in a few words."""
        if self.pieces is None:
            return "chat template, no chat pieces" if self.template else "no chat template"
        system = "with" if "system" in self.pieces.roles else "without"
        return f"chat template, chat pieces {system} system messages"
