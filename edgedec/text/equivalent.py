"""Writes a tokenizer's parts in the form that every reader here knows, where that does the same.

Converters write what published files write in other words: transformers puts byte fallback and
SentencePiece's marks around the byte-level tokenizer that it unpacks from a GGUF file, where both
have nothing to do, and replaces marks after tokens are joined instead of before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edgedec.text.detokenize import byte_of_char, decoder_parts

if TYPE_CHECKING:
    import tokenizers

_ALPHABET = frozenset(byte_of_char())


def simplify(backend: tokenizers.Tokenizer) -> bool:
    """Rewrite a tokenizer's decoder and byte fallback; return whether that changed anything."""
    state = None if backend.pre_tokenizer is None else backend.pre_tokenizer.__getstate__()
    by_bytes = state is not None and _has(json.loads(state), "ByteLevel")
    changed = by_bytes and _without_fallback(backend)
    if backend.decoder is None:
        return changed
    parts = decoder_parts(json.loads(backend.decoder.__getstate__()))
    simple = _of_bytes(parts) if by_bytes else _marks_first(parts)
    if simple == parts:
        return changed
    backend.decoder = _built(simple)
    return True


def _has(section: dict[str, Any], kind: str) -> bool:
    inner = section.get("pretokenizers") or ()
    return section.get("type") == kind or any(_has(part, kind) for part in inner)


def _without_fallback(backend: tokenizers.Tokenizer) -> bool:
    """Switch off byte fallback where it finds no token, or where each byte has another."""
    model: Any = backend.model
    if not getattr(model, "byte_fallback", False):
        return False
    names = {f"<0x{byte:02X}>" for byte in range(256)}
    if any(model.token_to_id(name) is not None for name in names) and None in map(
        model.token_to_id, _ALPHABET
    ):
        return False
    model.byte_fallback = False
    return True


def _of_bytes(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what comes before ByteLevel and concerns no token of bytes.

    The library would show a text's bytes as letters if an added token in it has another letter,
    since it takes the joined text for one token: what each token stands for is the same.
    """
    kinds = [part["type"] for part in parts]
    if "ByteLevel" not in kinds:
        return parts
    first = kinds.index("ByteLevel")
    for part in parts[:first]:
        pattern = part.get("pattern", {}).get("String", "")
        marks = part["type"] == "Replace" and pattern and _ALPHABET.isdisjoint(pattern)
        if part["type"] not in ("ByteFallback", "Fuse") and not marks:
            return parts
    return parts[first:]


def _marks_first(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace single characters before tokens are joined, as most files do."""
    marks = []
    for index, part in enumerate(parts):
        if part["type"] == "Replace" and len(part["pattern"].get("String", "")) == 1:
            marks.append(index)
        elif part["type"] not in ("ByteFallback", "Fuse"):
            break
    if "ByteFallback" not in [part["type"] for part in parts] or marks == [*range(len(marks))]:
        return parts
    return [parts[i] for i in marks] + [part for i, part in enumerate(parts) if i not in marks]


def _built(parts: list[dict[str, Any]]) -> Any:
    """Return the library's decoder of these parts."""
    from tokenizers import Tokenizer

    decoder = parts[0] if len(parts) == 1 else {"type": "Sequence", "decoders": parts}
    empty = {"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return Tokenizer.from_str(json.dumps({**empty, "decoder": decoder})).decoder
