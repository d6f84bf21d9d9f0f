"""Incremental detokenisation: a vocabulary's tokens become text, one at a time.

Two families cover the decoders of today: byte-level BPE, where every character of a token
stands for a byte, and SentencePiece, with a mark for spaces and ``<0xNN>`` for bytes. Their
``tokenizers`` decoders look at all tokens at once; here the same rules run incrementally.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from edgedec.errors import BundleError

REPLACEMENT = "\ufffd"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Joiner(Protocol):
    """Joins the tokens of one text."""

    def push(self, token: str) -> str:
        """Return the text this token completes; often nothing."""
        ...

    def flush(self) -> str:
        """Return the text that was held back."""
        ...


@dataclass(frozen=True, slots=True)
class Scheme:
    """The ``decoder`` section of a ``tokenizer.json``.

    Attributes:
        byte_level: every character is a byte (GPT-2's map).
        replacements: text replaced inside each token, in order.
        byte_fallback: ``<0xNN>`` tokens are bytes.
        strip: a character and how many of it are cut from the beginning of the whole text.
        mark: Metaspace's mark for a space.
        drop_first_mark: Metaspace drops the marks of the first token.

    """

    byte_level: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strip: tuple[str, int] = ("", 0)
    mark: str = ""
    drop_first_mark: bool = False

    @classmethod
    def read(cls, decoder: Any) -> Scheme:
        """Read the parsed JSON; BundleError for a decoder that cannot be run incrementally here."""
        parts = decoder_parts(decoder)
        fields: dict[str, Any] = {"replacements": ()}
        fused = fields["byte_level"] = bool(parts) and parts[0]["type"] == "ByteLevel"
        parts_left = parts[1:] if fused else parts
        for part in parts_left:
            _read_part(part, fields, fused=fused)
            fused = fused or part["type"] == "Fuse"
        if not parts:
            raise _unknown("none")
        return cls(**fields)

    @property
    def drops_first_space(self) -> bool:
        """True if the leading space of a text's first token is not part of the text."""
        return self.drop_first_mark or (self.strip[0] == " " and self.strip[1] > 0)

    def bytes_of(self, token: str) -> bytes:
        """Return the bytes of a vocabulary entry inside a text.

        May not be valid UTF-8 by itself: a character can be spread over several tokens.
        """
        if self.byte_level:
            return _byte_level(token)
        for old, new in self.replacements:
            token = token.replace(old, new)
        byte = BYTE_TOKEN.fullmatch(token) if self.byte_fallback else None
        if byte is not None:
            return bytes([int(byte[1], 16)])
        if self.mark:
            token = token.replace(self.mark, " ")
        return token.encode("utf-8", "replace")

    def joiner(self, *, continued: bool) -> Joiner:
        """Return a joiner for a new text, or for one that continues another."""
        inner = ByteLevelJoiner() if self.byte_level else PieceJoiner(self, continued=continued)
        return inner if continued or not self.strip[1] else StrippingJoiner(inner, *self.strip)


def decoder_parts(decoder: Any) -> list[dict[str, Any]]:
    """Return the decoders of a parsed ``decoder`` section, in order."""
    if not isinstance(decoder, dict):
        return []
    if decoder.get("type") == "Sequence":
        return [part for inner in decoder["decoders"] for part in decoder_parts(inner)]
    return [decoder]


def _read_part(part: dict[str, Any], fields: dict[str, Any], *, fused: bool) -> None:
    kind = part["type"]
    if kind == "Replace" and "String" in part["pattern"] and not fused:
        fields["replacements"] += ((part["pattern"]["String"], part["content"]),)
    elif kind == "ByteFallback" and not fused:
        fields["byte_fallback"] = True
    elif kind == "Metaspace" and not fused:
        fields["mark"] = part["replacement"]
        fields["drop_first_mark"] = part.get("prepend_scheme", "always") != "never"
    elif kind == "Strip" and fused and part["stop"] == 0:
        fields["strip"] = (part["content"], part["start"])
    elif kind != "Fuse":
        raise _unknown(kind)


def _unknown(kind: str) -> BundleError:
    return BundleError(
        f"the tokenizer's decoder ({kind}) is unknown here: expected ByteLevel, Metaspace, or "
        "Replace, ByteFallback, Fuse, Strip in this order"
    )


def byte_of_char() -> dict[str, int]:
    """Return GPT-2's map: printable Latin-1 stands for itself, other bytes for 256, 257, ..."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    table = {chr(byte): byte for byte in plain}
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table


_BYTES = byte_of_char()
_CHARS = {byte: char for char, byte in _BYTES.items()}


def byte_spelled(text: str) -> str:
    """Return a text as a byte-level vocabulary writes it."""
    return "".join(_CHARS[byte] for byte in text.encode("utf-8", "replace"))


def _byte_level(token: str) -> bytes:
    try:
        return bytes([_BYTES[char] for char in token])
    except KeyError:  # an added token, written literally
        return token.encode("utf-8", "replace")


class ByteLevelJoiner:
    """Joins the bytes of all tokens as UTF-8, with U+FFFD for invalid ones."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: str) -> str:
        return self._utf8.decode(_byte_level(token))

    def flush(self) -> str:
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text


class PieceJoiner:
    """Joins SentencePiece tokens; a run of byte tokens is held back until it ends.

    As in the library, a run is either text as a whole, or every byte is U+FFFD.
    """

    def __init__(self, scheme: Scheme, *, continued: bool) -> None:
        self._scheme = scheme
        self._run = bytearray()
        self._first = not continued

    def push(self, token: str) -> str:
        scheme = self._scheme
        for old, new in scheme.replacements:
            token = token.replace(old, new)
        first, self._first = self._first, False
        if scheme.byte_fallback:
            byte = BYTE_TOKEN.fullmatch(token)
            if byte is not None:
                self._run.append(int(byte[1], 16))
                return ""
        if scheme.mark:
            token = token.replace(scheme.mark, "" if first and scheme.drop_first_mark else " ")
        return self._end_run() + token

    def flush(self) -> str:
        return self._end_run()

    def _end_run(self) -> str:
        run, self._run = self._run, bytearray()
        try:
            return run.decode("utf-8")
        except UnicodeDecodeError:
            return REPLACEMENT * len(run)


class StrippingJoiner:
    """Joins without what is stripped from the beginning of the whole text.

    Args:
        inner: joins.
        char: is stripped.
        count: at most so many of it.

    """

    def __init__(self, inner: Joiner, char: str, count: int) -> None:
        self._inner, self._char, self._left = inner, char, count

    def push(self, token: str) -> str:
        return self._stripped(self._inner.push(token))

    def flush(self) -> str:
        return self._stripped(self._inner.flush())

    def _stripped(self, text: str) -> str:
        while self._left and text:
            if text[0] != self._char:
                self._left = 0
                break
            text = text[1:]
            self._left -= 1
        return text


class TextStream:
    """Incremental detokeniser that returns text once it is certain, at constant cost per token.

    The pieces joined are exactly ``Tokenizer.decode`` of all tokens, invalid bytes included, and no
    piece ends inside a character.

    Args:
        written: returns a token as the vocabulary writes it; empty if decoding skips it.
        joiner: of this text.
        shown: texts of special tokens that are shown; the others have none.

    """

    def __init__(
        self,
        written: Callable[[int], str],
        joiner: Joiner,
        shown: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._written, self._joiner, self._shown = written, joiner, shown

    def push(self, token: int) -> str:
        """Return the text this token completes; often nothing."""
        if (shown := self._shown.get(token)) is not None:
            return self._joiner.flush() + shown
        written = self._written(token)
        return self._joiner.push(written) if written else ""

    def flush(self) -> str:
        """Return the text that was held back; the text ends here."""
        return self._joiner.flush()
