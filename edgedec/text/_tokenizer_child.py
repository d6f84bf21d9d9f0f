"""The child process of ``tokenizer_check``: loads a tokenizer and tries it.

It encodes runs of every printable ASCII character and words of several scripts. This reveals a
pre-tokenizer whose expression backtracks without end, and a normalizer that doubles text.
"""

from __future__ import annotations

import base64
import json
import math
import re
import string
import sys
from collections.abc import Mapping
from typing import Any

import tokenizers

from edgedec._support import _sandbox_child
from edgedec._support._sandbox_child import Refusal

RUN = 64
WORDS = (
    "It's 3.14 €\n\tNaïve Größe, привет мир: 你好世界。 こんにちは مرحبا שלום 😀 ﬁ \u0301 \u200b."
)
PROBES = ("a", WORDS, *(character * RUN for character in string.printable))
# A byte-level token can be one of four bytes; a character becomes up to 18 in NFKC.
MOST_TOKENS_PER_CHARACTER = 4 * 18
MOST_TOKENS_AROUND = 1 << 10
MOST_GROWTH = 64
# A character or a class of them, at least once: it matches no empty text.
_TAKES_ONE = re.compile(
    r"(?:[^\\\[\](){}.*+?|^$]|\\[sSdDwWnrt]|\[[^\[\]\\^&]+\])(?:\+|\{[1-9]\d?,?\})?"
)


def check(task: Mapping[str, Any]) -> int:
    """Load the ``tokenizer`` and try it; return its number of tokens, or raise Refusal."""
    try:
        backend = tokenizers.Tokenizer.from_str(task["tokenizer"])
        _check_growth(backend.normalizer)
        backend.no_truncation()
        backend.no_padding()
        for probe in PROBES:
            count = len(backend.encode(probe).ids)
            if count > MOST_TOKENS_PER_CHARACTER * len(probe) + MOST_TOKENS_AROUND:
                raise ValueError(f"it makes {count} tokens of {len(probe)} characters")
        vocabulary = len(backend.get_vocab(with_added_tokens=True))
        if not vocabulary:
            raise ValueError("it has no tokens")
    except MemoryError:
        raise
    except BaseException as error:  # a panic in the library is not an Exception
        raise Refusal(type(error).__name__, str(error)[:1000]) from None
    return vocabulary


def _check_growth(normalizer: tokenizers.normalizers.Normalizer | None) -> None:
    """Refuse replacements that can turn a short text into a long one."""
    growth = 1.0 if normalizer is None else _growth(json.loads(normalizer.__getstate__()))
    if growth > MOST_GROWTH:
        raise ValueError(f"its normalizer may turn one character into {growth:.0f}")


def _growth(step: Mapping[str, Any]) -> float:
    """Return the most characters that one becomes, apart from Unicode's own normal forms."""
    kind = step.get("type")
    if kind == "Sequence":
        return min(math.prod(map(_growth, step["normalizers"])), sys.float_info.max)
    if kind == "Replace":
        return _growth_of_replacement(step["pattern"], len(step["content"]))
    if kind == "Prepend":  # before each piece between two added tokens
        return 1.0 + len(step["prepend"])
    if kind == "Precompiled":
        return float(_longest_mapped(base64.b64decode(step["precompiled_charsmap"])))
    return 4.0 if kind == "ByteLevel" else 1.0  # a character for each byte of UTF-8


def _growth_of_replacement(pattern: Mapping[str, str], content: int) -> float:
    if "String" in pattern:
        return max(1.0, content / max(1, len(pattern["String"])))
    # An expression may match a single character or, unless it is a simple one, none at all.
    return max(1.0, content) if _TAKES_ONE.fullmatch(pattern["Regex"]) else 1.0 + content


def _longest_mapped(charsmap: bytes) -> int:
    """Return the longest text in SentencePiece's table: a trie's length, the trie, the texts."""
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
    return max(1, *(len(text.decode("utf-8", "replace")) for text in texts))


if __name__ == "__main__":
    _sandbox_child.serve(check)
