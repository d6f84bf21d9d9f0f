"""Converts a Hugging Face tokenizer to GGUF keys: tokens, types, merges or scores, settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
from tokenizers import Tokenizer as Backend

from edgedec.errors import ExportError
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.gguf.pretokenizers import name_for
from edgedec.export.tokenizer import TokenizerContent
from edgedec.gguf.tokenizer import SPACE
from edgedec.gguf.vocabulary import ENDS
from edgedec.text.portable import flat
from edgedec.text.tokenizer import Tokenizer

_Kind = gguf.TokenType
_BYTE = re.compile("<0x[0-9A-F]{2}>")
# llama.cpp's score for tokens that no merge makes.
_NEVER = -1e4
# Of added tokens, apart from normalized, which matters where there is a normalizer.
_FLAGS = ("lstrip", "rstrip", "single_word")
_NAMED = 3
_INNER = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
# What llama.cpp does to the texts of a tokenizer of pieces; spaces are marks when they are split.
_PIECES: dict[str, dict[str, Any]] = {
    "normalizer": {
        "Prepend": {"prepend": SPACE},
        "Replace": {"pattern": {"String": " "}, "content": SPACE},
        "NFC": None,
    },
    "pre_tokenizer": {
        "Metaspace": {"replacement": SPACE},
        "Split": {"pattern": {"String": " "}},
    },
}


def tokenizer_keys(checkpoint: Checkpoint, content: TokenizerContent, rows: int) -> dict[str, Any]:
    """Return all ``tokenizer.*`` keys for ``rows`` of vocabulary; ExportError if GGUF has none."""
    raw, model = content.raw, content.model
    if model.get("type", "BPE") != "BPE":
        raise ExportError(
            f"{checkpoint.path}: a tokenizer of type {model.get('type')!r} has no GGUF form here,"
            " only BPE: export it to another format"
        )
    added = {token["id"]: token for token in raw.get("added_tokens") or []}
    tokens = _tokens(content, rows)
    if model.get("byte_fallback"):
        _check(checkpoint.path, raw, _PIECES, "of pieces")
        keys = _pieces(raw, model, tokens)
    else:
        # NFC rarely changes a text, and llama.cpp's own conversion ignores it as well.
        _check(checkpoint.path, raw, {"normalizer": {"NFC": None}}, "of bytes")
        keys = _byte_level(Tokenizer.load(checkpoint.texts).backend, model)
    keys["tokenizer.ggml.tokens"] = tokens
    keys["tokenizer.ggml.token_type"] = _kinds(content, tokens, added, model)
    return keys | _specials(checkpoint)


def left_out(content: TokenizerContent) -> str:
    """Return a note on what other programs that read the file do in another way, or nothing.

    In a bundle text is read with tokenizer.json, whatever the file says.
    """
    found = [
        f"{flag} of {one['content']!r:.40}"
        for one in content.raw.get("added_tokens") or []
        for flag in _FLAGS
        if one.get(flag)
    ]
    cuts = list(flat(content.raw.get("pre_tokenizer"), _INNER["pre_tokenizer"]))
    if any(part.get("prepend_scheme") == "first" for part in cuts):
        found.append("a space at the beginning of a text alone")
    if not found:
        return ""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    named = ", ".join(found[:_NAMED])
    return f"a GGUF file cannot say, and llama.cpp by itself does not do: {named}{more}"


def _tokens(content: TokenizerContent, rows: int) -> list[str]:
    """Return every row's text; rows that are not tokens get a placeholder."""
    known = content.tokens()
    tokens = [known.get(id, f"[PAD{id}]") for id in range(rows)]
    if len(set(tokens)) < rows:
        raise ExportError("two tokens have the same text, and llama.cpp needs one id per text")
    return tokens


def _kinds(
    content: TokenizerContent,
    tokens: Sequence[str],
    added: dict[int, Any],
    model: dict[str, Any],
) -> list[int]:
    known = content.tokens()
    unknown = model.get("unk_token")
    kinds = []
    for id, text in enumerate(tokens):
        kind = _Kind.NORMAL
        if id not in known:
            kind = _Kind.UNUSED
        elif text == unknown:
            kind = _Kind.UNKNOWN
        elif id in added:
            kind = _Kind.CONTROL if added[id].get("special") else _Kind.USER_DEFINED
        elif model.get("byte_fallback") and _BYTE.fullmatch(text):
            kind = _Kind.BYTE
        kinds.append(int(kind))
    return kinds


def _check(folder: Path, raw: dict[str, Any], known: dict[str, dict[str, Any]], kind: str) -> None:
    """Refuse a part that changes a text and that llama.cpp's tokenizers ``kind`` do not have.

    Args:
        folder: the model's, in messages.
        raw: the parsed tokenizer.
        known: by section, types of parts and the fields that these must have.
        kind: of tokenizer, in messages.

    """
    for section, parts in known.items():
        for part in flat(raw.get(section), _INNER[section]):
            name = str(part.get("type"))
            wanted = parts.get(name, {"type": None}) or {}
            other = [field for field in wanted if part.get(field) != wanted[field]]
            if other:
                how = f" with {other[0]} {part.get(other[0])!r:.40}" if name in parts else ""
                raise ExportError(
                    f"{folder}: llama.cpp has no tokenizer {kind} with the"
                    f" {section.replace('_', '-')} {name}{how}: export it to another format"
                )


def _byte_level(backend: Backend, model: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a GPT-2 tokenizer: words by a regular expression, merges over bytes."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name_for(backend, bool(model.get("ignore_merges"))),
        "tokenizer.ggml.merges": [f"{one} {two}" for one, two in model.get("merges", [])],
    }


def _pieces(raw: dict[str, Any], model: dict[str, Any], tokens: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a SentencePiece tokenizer: spaces are characters, merges follow scores."""
    ranks: dict[str, int] = {}
    for rank, (one, two) in enumerate(model.get("merges", [])):
        ranks.setdefault(one + two, rank)
    # Earlier merges have higher scores.
    scores = [-float(ranks[text]) if text in ranks else _NEVER for text in tokens]
    unknown = model.get("unk_token")
    named = {"tokenizer.ggml.unknown_token_id": tokens.index(unknown)} if unknown in tokens else {}
    return named | {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": _adds_space(raw),
    }


def _adds_space(raw: dict[str, Any]) -> bool:
    """Return whether a text gets a leading space."""
    for section, inner in _INNER.items():
        for part in flat(raw.get(section), inner):
            if part["type"] == "Prepend":
                return True
            if part["type"] == "Metaspace":
                return bool(part.get("prepend_scheme", "always") != "never")
    return False


def _specials(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the special tokens, whether they are added to a text, and the chat template."""
    tokenizer = Tokenizer.load(checkpoint.texts)
    before, after = _around(tokenizer)
    ends = tuple(dict.fromkeys((*after[:1], *checkpoint.eos_ids)))
    # The token that actually begins a text takes precedence over the declared one.
    named = {"bos": before[0] if before else tokenizer.bos_id}
    named |= dict(zip(("eos", "eot", "eom"), ends, strict=False))
    keys: dict[str, Any] = {
        f"tokenizer.ggml.{name}_token_id": id for name, id in named.items() if id is not None
    }
    if ends:
        # llama.cpp has keys for three, and adds every token that is called like an end.
        keys[ENDS] = ",".join(map(str, ends))
    keys["tokenizer.ggml.add_bos_token"] = len(before) == 1
    keys["tokenizer.ggml.add_eos_token"] = len(after) == 1
    template = tokenizer.chat_template
    return keys | ({"tokenizer.chat_template": template.source} if template else {})


def _around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the tokens that are put before and after a text."""
    plain = tokenizer.encode("a", add_special_tokens=False)
    whole = tokenizer.encode("a")
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[:start], whole[start + len(plain) :]
    return [], []
