"""What runs in the child process of ``text``: a tokenizer nobody opened yet, loaded and tried.

It encodes runs of every printable ASCII character and words of several scripts. A pre-tokenizer
whose expression backtracks without end shows itself here, as does a normalizer that doubles text.
"""

from __future__ import annotations

import json
import math
import string
import sys
from collections.abc import Mapping
from typing import Any

import tokenizers

from edgedec import _confined_child
from edgedec._confined_child import Refusal

RUN = 64
WORDS = (
    "It's 3.14 €\n\tNaïve Größe, привет мир: 你好世界。 こんにちは مرحبا שלום 😀 ﬁ \u0301 \u200b."
)
PROBES = ("a", WORDS, *(character * RUN for character in string.printable))
# A byte-level token can be one of four bytes; one character becomes up to 18 in NFKC.
MOST_TOKENS_PER_CHARACTER = 4 * 18
MOST_TOKENS_AROUND = 1 << 10
MOST_GROWTH = 64


def check(task: Mapping[str, Any]) -> int:
    """Load the ``tokenizer``; how many tokens it has.

    Raises:
        Refusal: it cannot be loaded, or does not encode the probes.

    """
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
    except BaseException as error:  # a panic in the library is no Exception
        raise Refusal(type(error).__name__, str(error)[:1000]) from None
    return vocabulary


def _check_growth(normalizer: tokenizers.normalizers.Normalizer | None) -> None:
    """Refuse replacements that together make a long text of a short one, whatever it says."""
    growth = 1.0 if normalizer is None else _growth(json.loads(normalizer.__getstate__()))
    if growth > MOST_GROWTH:
        raise ValueError(f"its normalizer may make {growth:.0f} characters of one")


def _growth(step: Mapping[str, Any]) -> float:
    """Characters that one becomes at most, Unicode's own normal forms aside."""
    if step.get("type") == "Sequence":
        return min(math.prod(map(_growth, step["normalizers"])), sys.float_info.max)
    if step.get("type") != "Replace":
        return 1.0
    # An expression may match a single character.
    least = len(step["pattern"].get("String", "")) or 1
    return max(1.0, len(step["content"]) / least)


if __name__ == "__main__":
    _confined_child.serve(check)
