"""How much text one token can stand for, where a tokenizer's rules say so.

A text with more characters than its tokens could stand for need not be tokenised to be refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

# Most characters that Unicode's normal form C makes one of.
_COMPOSED = 4
_KEEP_ALL = {"ByteLevel", "Metaspace", "Digits"}


def longest_token(
    backend: tokenizers.Tokenizer, pieces: Iterable[bytes | None], *, byte_level: bool
) -> int | None:
    """Return the most characters of a text that one token can stand for.

    None where rules of the tokenizer may drop characters, so that a token stands for any number:
    a normalizer that shortens, white space that separates, characters without a token.

    Args:
        backend: the tokenizer's rules.
        pieces: the bytes of each token; None or empty for those without any.
        byte_level: tokens are spelled in bytes, of which those that are in no UTF-8 may lack one.

    """
    factor = 1
    for step in _steps(backend.normalizer, "normalizers"):
        if step["type"] == "NFC":
            factor = _COMPOSED
        elif step["type"] not in ("Prepend", "ByteLevel") and not _keeps_length(step):
            return None
    for step in _steps(backend.pre_tokenizer, "pretokenizers"):
        split = step["type"] == "Split" and step["behavior"] != "Removed"
        if step["type"] not in _KEEP_ALL and not split:
            return None
    added = backend.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip for token in added):
        return None
    spelled = [piece for piece in pieces if piece]
    known = {piece for piece in spelled if len(piece) == 1}
    if len(known) < 256 and not (byte_level and _all_of_utf8(known)):
        return None
    return factor * max(map(len, [*spelled, *(token.content for token in added)]))


def _all_of_utf8(known: set[bytes]) -> bool:
    # These bytes are in no UTF-8.
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}
    return known >= {bytes([byte]) for byte in range(256) if byte not in never}


def _keeps_length(step: Mapping[str, Any]) -> bool:
    if step["type"] != "Replace" or "String" not in step["pattern"]:
        return False
    return 0 < len(step["pattern"]["String"]) <= len(step["content"])


def _steps(part: Any, inner: str) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer or pre-tokenizer, those of sequences one by one."""
    if part is not None:
        yield from _flat(json.loads(part.__getstate__()), inner)


def _flat(step: Mapping[str, Any], inner: str) -> Iterator[Mapping[str, Any]]:
    if step["type"] == "Sequence":
        for one in step[inner]:
            yield from _flat(one, inner)
    else:
        yield step
