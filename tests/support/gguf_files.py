"""GGUF files byte by byte, sound or not; and llama.cpp's own tokenizer to compare with."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tiny_tokenizers

from edgedec.text.detokenize import byte_of_char

CODES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


class Raw(NamedTuple):
    """An entry's type and bytes as they are."""

    kind: int
    data: bytes


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def value(found: Any) -> bytes:
    """An entry's type and value."""
    if isinstance(found, Raw):
        return struct.pack("<I", found.kind) + found.data
    if isinstance(found, bool):
        return struct.pack("<IB", 7, found)
    if isinstance(found, str):
        return struct.pack("<I", 8) + text(found)
    if isinstance(found, list):
        return struct.pack("<IIQ", 9, 8, len(found)) + b"".join(map(text, found))
    if isinstance(found, np.ndarray):
        return struct.pack("<IIQ", 9, CODES[found.dtype.str[1:].replace("|", "")], len(found)) + (
            found.tobytes()
        )
    scalar = np.float32(found) if isinstance(found, float) else found
    scalar = scalar if isinstance(scalar, np.generic) else np.uint32(scalar)
    return struct.pack("<I", CODES[scalar.dtype.str[1:]]) + scalar.tobytes()


class Tensor(NamedTuple):
    """A tensor's info; ``offset`` None puts it behind the one before."""

    name: str
    shape: tuple[int, ...]
    kind: int = 0
    data: bytes = b""
    offset: int | None = None


def f32(name: str, *shape: int) -> Tensor:
    """A tensor of zeros."""
    return Tensor(name, shape, 0, bytes(4 * int(np.prod(shape))))


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: tuple[Tensor, ...] = (), *, version: int = 3
) -> bytes:
    head = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    head += [text(key) + value(found) for key, found in metadata.items()]
    data = b""
    for tensor in tensors:
        offset = len(data) if tensor.offset is None else tensor.offset
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        head.append(text(tensor.name) + shape + struct.pack("<IQ", tensor.kind, offset))
        data += tensor.data + bytes(-len(tensor.data) % 32)
    joined = b"".join(head)
    return joined + bytes(-len(joined) % 32 if tensors else 0) + data


def write(file: Path, metadata: Mapping[str, Any], tensors: tuple[Tensor, ...] = ()) -> Path:
    file.write_bytes(gguf_bytes(metadata, tensors))
    return file


def vocabulary(
    kind: str, tokens: list[str], types: list[int] | None = None, **entries: Any
) -> dict[str, Any]:
    """The metadata of a file that holds a vocabulary only."""
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types or [NORMAL] * len(tokens), np.int32),
        **{f"tokenizer.ggml.{name}": found for name, found in entries.items()},
    }


# Letters, digits, signs and spaces that the cuts treat differently.
ALPHABET = [*"sTreLld aB12_(+/`'-.|\n\r\t", *"éÄжǅªº\u0301中あ한٣½Ⅷ😀\u00a0\u3000…\uff0c\u0627€"]


@functools.cache
def byte_pairs(pre: str | None) -> dict[str, Any]:
    """A byte-level vocabulary in which every two characters of the alphabet are a token.

    A cut in another place then nearly always gives other tokens.
    """
    of_byte = {byte: char for char, byte in byte_of_char().items()}

    def written(char: str) -> str:
        return "".join(of_byte[byte] for byte in char.encode())

    merges: list[tuple[str, str]] = []
    for char in map(written, ALPHABET):
        merges += [(char[:end], char[end]) for end in range(1, len(char))]
    pairs = [(written(a), written(b)) for a in ALPHABET for b in ALPHABET]
    # In an order that is no order of the alphabet's.
    merges += [pairs[i * 577 % len(pairs)] for i in range(len(pairs))]
    space = written(" ")
    merges.append((2 * space, space))
    tokens = [*of_byte.values(), *dict.fromkeys(a + b for a, b in merges)]
    # Words that no merge leads to: some cuts take them whole all the same.
    tokens += ["sTr", written("\u4e2d\u3042\ud55c")]
    tokens = [*dict.fromkeys(tokens), "<|bos|>", "<|im_end|>", "<think>", "  x"]
    types = [NORMAL] * (len(tokens) - 4) + [CONTROL, NORMAL, USER_DEFINED, USER_DEFINED]
    entries = {"merges": [f"{a} {b}" for a, b in merges], "bos_token_id": len(tokens) - 4,
               "eos_token_id": len(tokens) - 3}  # fmt: skip
    return vocabulary("gpt2", tokens, types, **entries, **({} if pre is None else {"pre": pre}))


def pieces(**entries: Any) -> dict[str, Any]:
    """A small trained SentencePiece-like vocabulary, scores by rank as Llama's are."""
    model = json.loads(tiny_tokenizers.llama().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    scores = [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 259)
    return piece_vocabulary(tokens, types, scores, **entries)


def merged_pieces(**entries: Any) -> dict[str, Any]:
    """The same pieces as Gemma 4 has them, merged as listed; one merge gives no token."""
    base, model = pieces(), json.loads(tiny_tokenizers.llama().to_str())["model"]
    more = ["\n\n", "\n\n\n", "q\n"]
    tokens = [*base["tokenizer.ggml.tokens"], *more]
    types = [*base["tokenizer.ggml.token_type"].tolist(), *[NORMAL] * len(more)]
    merges = [" ".join(merge) for merge in model["merges"]]
    merges += ["\n \n", "\n\n \n", "q \n", "q d"]
    return vocabulary("gemma4", tokens, types, merges=merges, bos_token_id=1, **entries)


def piece_vocabulary(
    tokens: list[str], types: list[int], scores: list[float], **entries: Any
) -> dict[str, Any]:
    return vocabulary("llama", tokens, types, scores=np.array(scores, np.float32), **entries)


def llama_tokenizer(file: Path) -> Callable[[str], list[int]]:
    """llama.cpp's own ids for a text; skips where llama.cpp is missing."""
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    from edgedec.runtimes.llamacpp.library import api as llama  # its log is silent

    params = llama.llama_model_default_params()
    params.vocab_only = True
    model = llama.llama_model_load_from_file(str(file).encode(), params)
    assert model, "llama.cpp does not load this vocabulary"
    vocab = llama.llama_model_get_vocab(model)

    def ids(text: str) -> list[int]:
        data = text.encode()
        room = (llama.llama_token * (len(data) + 16))()
        # Adds BOS as the file says; the names of special tokens become those tokens.
        count = llama.llama_tokenize(vocab, data, len(data), room, len(room), True, True)
        assert count >= 0
        return list(room[:count])

    return ids
