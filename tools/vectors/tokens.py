"""Vectors of tokenizers: ids of texts, texts of ids, and the pieces that come while streaming."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import tokenizers

from edgedec.text.tokenizer import Tokenizer
from tools.vectors import strings
from tools.vectors.files import FOLDER
from tools.vectors.small_tokenizers import KINDS

DEMO = "edgedec/models/demo/bundle/tokenizer"
_ROOT = Path(__file__).resolve().parents[2]
_DRAWN, _DECODED = 14, 12


def make() -> dict[str, Any]:
    """Return ``tokens.json``, of the tokenizers as they are committed."""
    loaded = {name: load(name, place) for name, place in places().items()}
    return {
        "made_with": {"tokenizers": tokenizers.__version__},
        "tokenizers": places(),
        "cases": [
            case(name, tokenizer, text, add_special_tokens=add)
            for number, (name, tokenizer) in enumerate(loaded.items())
            for text, add in _texts(number)
        ],
        "decodes": [
            decode(name, tokenizer, ids, prompt)
            for number, (name, tokenizer) in enumerate(loaded.items())
            for ids, prompt in _ids(tokenizer, number)
        ],
    }


def places() -> dict[str, str]:
    """Return where each tokenizer is: the demo's in the package, others in the vectors' folder."""
    return {"demo": DEMO} | {name: f"tokenizers/{name}.json" for name in KINDS}


def load(name: str, place: str) -> Tokenizer:
    """Return a tokenizer, given its name and place in ``places()``."""
    return Tokenizer.load(_ROOT / place if name == "demo" else FOLDER / place)


def case(name: str, tokenizer: Tokenizer, text: str, *, add_special_tokens: bool) -> dict[str, Any]:
    """Return a text's ids, and what these stream and decode to."""
    ids = tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return {
        "tokenizer": name,
        "text": text,
        "add_special_tokens": add_special_tokens,
        "ids": ids,
        "pieces": pieces(tokenizer, ids, []),
        "decoded": tokenizer.decode(ids),
    }


def decode(name: str, tokenizer: Tokenizer, ids: list[int], prompt: list[int]) -> dict[str, Any]:
    """Return what ids that no text gave stream to, after a prompt."""
    return {"tokenizer": name, "ids": ids, "prompt": prompt,
            "pieces": pieces(tokenizer, ids, prompt)}  # fmt: skip


def pieces(tokenizer: Tokenizer, ids: list[int], prompt: list[int]) -> list[str]:
    """Return the pieces of streamed ids, with the one that ends the text last."""
    stream = tokenizer.stream(prompt)
    return [*(stream.push(token) for token in ids), stream.flush()]


def _texts(number: int) -> list[tuple[str, bool]]:
    """Return texts, some of them without the tokens that a file adds."""
    texts = [*strings.TEXTS, *strings.drawn(number, _DRAWN)]
    return [(text, index % 5 != 4) for index, text in enumerate(texts)]


def _ids(tokenizer: Tokenizer, number: int) -> list[tuple[list[int], list[int]]]:
    """Return random ids, which need not be whole characters; ids of no token among them."""
    rng = random.Random(1000 + number)
    byte_tokens = [
        token for token in range(tokenizer.vocab_size)
        if len(tokenizer.bytes_of(token)) == 1 and tokenizer.bytes_of(token)[0] >= 0x80
    ]  # fmt: skip
    spaced = [t for t in range(tokenizer.vocab_size) if tokenizer.bytes_of(t).startswith(b" ")]
    prompts = ([], sorted(tokenizer.special_ids)[:1], tokenizer.encode("a b"))
    found = []
    for index in range(_DECODED):
        ids = [
            rng.choice(byte_tokens) if rng.random() < 0.5 else rng.randrange(tokenizer.vocab_size)
            for _ in range(rng.randint(1, 14))
        ]
        if index % 2:  # of which the beginning of a text may lose the space
            ids.insert(0, rng.choice(spaced))
        if index % 4 == 3:
            ids.insert(rng.randrange(len(ids)), tokenizer.vocab_size + 7)
        found.append((ids, list(prompts[index % 3])))
    return found
