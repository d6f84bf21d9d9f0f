"""What runs in the child process of ``text``: a tokenizer nobody opened yet, loaded and tried.

It encodes runs of every printable ASCII character and words of several scripts. A pre-tokenizer
whose expression backtracks without end, or a normalizer that doubles text, shows itself here.
"""

from __future__ import annotations

import string
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


def check(task: Mapping[str, Any]) -> int:
    """Load the ``tokenizer``; how many tokens it has.

    Raises:
        Refusal: it cannot be loaded, or does not encode the probes.

    """
    try:
        backend = tokenizers.Tokenizer.from_str(task["tokenizer"])
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


if __name__ == "__main__":
    _confined_child.serve(check)
