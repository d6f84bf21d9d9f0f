"""Spells one tokenizer's tokens in another's, with the end of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from edgedec.decoding.translation import OUTSIDE
from edgedec.text.detokenize import BYTE_TOKEN
from edgedec.text.tokenizer import Tokenizer

Spelled = Sequence[bytes | None]

# Bytes that are not UTF-8, as "surrogateescape" writes them.
_RAW = re.compile("([\udc80-\udcff]+)")
# Prefix for a text that continues another, which is removed again, for tokenizers that treat the
# beginning of a text in their own way (SentencePiece adds a space).
_FRONTS = ("", "\n", "|", "a", ".", "\u4e00")
_PROBES = ("x", " x")


class Encoder:
    """A tokenizer as seen from the middle of a text, in bytes.

    Args:
        spelled: the bytes of its tokens, None for special ones.

    Attributes:
        start: ids that it puts in front of every text, as BOS.
        drops_first_space: see ``Scheme``.

    """

    def __init__(self, tokenizer: Tokenizer, spelled: Spelled) -> None:
        self.spelled = spelled
        self.drops_first_space = tokenizer.scheme.drops_first_space
        self._tokenizer = tokenizer
        self.by_bytes = ids_by_bytes(tokenizer, spelled)
        self._names = _inside(tokenizer.special_names)
        whole, bare = tokenizer.encode("a"), self._ids("a")  # tested with every file
        front = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), 0)
        self.start = whole[:front]
        self._fronts = [(text, self._ids(text)) for text in _FRONTS if self._leaves_alone(text)]

    def encode(self, data: bytes, *, first: bool) -> list[int]:
        """Return the ids of a piece of text; bytes that are not UTF-8 become byte tokens.

        ``first``: it is the beginning, where SentencePiece may add a space.
        """
        ids: list[int] = []
        for index, part in enumerate(_RAW.split(data.decode("utf-8", "surrogateescape"))):
            if index % 2:
                found = [self.by_bytes.get(bytes([ord(char) - 0xDC00])) for char in part]
                ids += [id for id in found if id is not None]
            elif part and first and not ids:
                ids += self._text(part)
            elif part:
                ids += self._continued(part)
        return ids

    def _continued(self, text: str) -> list[int]:
        for front, ahead in self._fronts:
            ids = self._text(front + text)
            if ids[: len(ahead)] == ahead:  # it was not merged with what follows
                return ids[len(ahead) :]
        return self._text(text)

    def _text(self, text: str) -> list[int]:
        """Return the ids of a text in which the names of special tokens are not interpreted."""
        first, *others = self._names.split(text)
        ids = self._ids(first)
        for part in others:
            ids += self._continued(part)
        spelled = self.spelled
        return [id for id in ids if id < len(spelled) and spelled[id] is not None]

    def _ids(self, text: str) -> list[int]:
        try:
            return self._tokenizer.encode(text, add_special_tokens=False)
        except Exception:
            # The library raises only this if a vocabulary has no token for a character, not even an
            # unknown one. A draft must not end a text for that.
            return []

    def _leaves_alone(self, front: str) -> bool:
        """Return whether the ids after ``front`` encode exactly the text after it."""
        ahead = self._ids(front)
        for probe in _PROBES:
            ids = self._ids(front + probe)
            rest = ids[len(ahead) :]
            spelled = [self.spelled[id] if id < len(self.spelled) else None for id in rest]
            if ids[: len(ahead)] != ahead or b"".join(b or b"" for b in spelled) != probe.encode():
                return False
        return True


class TextSpeller:
    """A ``Speller`` between two tokenizers."""

    def __init__(self, target: Encoder, draft: Encoder) -> None:
        self._target = target
        self._draft = draft

    def spell(self, tokens: Sequence[int], *, first: bool) -> tuple[list[int], list[int]]:
        ids = list(self._draft.start) if first else []
        ends: list[int] = []
        run: list[bytes] = []
        spelled = self._target.spelled
        for token in tokens:
            data = spelled[token]
            if data is not None:
                run.append(data)
                continue
            self._close(run, ids, ends, first=first)
            first = first and not run
            run = []
            ends.append(len(ids))
        self._close(run, ids, ends, first=first)
        return ids, ends

    def write(self, tokens: Sequence[int], drafted: Sequence[int]) -> list[int]:
        parts = [self._draft.spelled[token] for token in drafted]
        if None in parts:
            drafted, parts = drafted[: parts.index(None)], parts[: parts.index(None)]
        new = b"".join(data or b"" for data in parts)
        if self._draft.encode(new, first=False) != list(drafted):
            # Not as the draft's tokenizer would write it, as sampling may draw: the target's
            # tokenisation will differ, too.
            return [id for data in parts for id in self._target.encode(data or b"", first=False)]
        new = _whole_characters(new)
        # As the target would tokenise the whole, if that continues its tokens.
        spelled = self._target.spelled
        before: list[int] = []
        for token in tokens:
            before = [] if spelled[token] is None else [*before, token]
        ids = self._target.encode(b"".join(spelled[id] or b"" for id in before) + new, first=False)
        if ids[: len(before)] == before:
            return ids[len(before) :]
        return self._target.encode(new, first=False)

    def _close(self, run: list[bytes], ids: list[int], ends: list[int], *, first: bool) -> None:
        """Append a run of text without special tokens."""
        if not run:
            return
        data = b"".join(run)
        lead = int(first and self._target.drops_first_space and data[:1] == b" ")
        new = self._draft.encode(data[lead:], first=first)
        sizes = [len(self._draft.spelled[id] or b"") for id in new]
        added = sum(sizes) - (len(data) - lead)
        stops, count = {0: len(ids)}, -added
        for index, size in enumerate(sizes, len(ids) + 1):
            count += size
            stops[count] = index
        ids += new
        offset, ordinary = -lead, added == 0 or (added == 1 and first)
        for data in run:
            offset += len(data)
            ends.append(stops.get(max(0, offset), OUTSIDE) if ordinary else OUTSIDE)
        ends[-1] = len(ids)


def _inside(names: Iterable[str]) -> re.Pattern[str]:
    """Return what matches behind the first character of any of ``names``."""
    rests: dict[str, list[str]] = {}
    for name in sorted(names):
        if name[1:]:
            rests.setdefault(re.escape(name[0]), []).append(re.escape(name[1:]))
    behind = [f"(?<={first})(?={'|'.join(rest)})" for first, rest in rests.items()]
    return re.compile("|".join(behind) or "(?!)")


def ids_by_bytes(tokenizer: Tokenizer, spelled: Spelled) -> dict[bytes, int]:
    """Return the id of each byte string: a written token before ``<0xNN>``, then the lowest."""
    found: dict[bytes, int] = {}
    fallback: dict[bytes, int] = {}
    for token, data in enumerate(spelled):
        if not data:
            continue
        by_name = len(data) == 1 and BYTE_TOKEN.fullmatch(tokenizer.written(token))
        (fallback if by_name else found).setdefault(data, token)
    return {**fallback, **found}


def _whole_characters(data: bytes) -> bytes:
    """Return the bytes without an incomplete character at the end."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start] if error.end == len(data) else data
    return data
