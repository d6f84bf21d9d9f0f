"""The vocabulary in a GGUF's metadata, as llama.cpp's ``llama-vocab.cpp`` understands it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.errors import BundleError
from edgedec.gguf.header import GgufHeader

# `enum llama_token_type`
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

# Tokens of these names end a text and are never part of it, whatever type the file gives them.
END_NAMES = frozenset(
    [
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>"),
        *("<|calls|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>"),
        *("_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>"),
        *("<turn|>", "<|tool_response>", "[e~["),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",  # DeepSeek's, with a wide bar
    ]
)
# Tokens of these names are text that is always matched whole.
SHOWN_NAMES = frozenset(["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"])
# Fill-in-the-middle and file markers, which are never text either.
FILL_NAMES = frozenset(
    [
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "\u2581<PRE>"),
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "\u2581<SUF>"),
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "\u2581<MID>"),
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|file_sep|>"),
        *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
        *("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
        *("<|prefix|>", "<|suffix|>", "<|middle|>"),
        *(f"<\uff5cfim\u2581{part}\uff5c>" for part in ("begin", "hole", "end")),  # DeepSeek's
    ]
)
# Ids of all ends that a model's files name, separated by commas: in files that edgedec writes.
ENDS = "edgedec.eos_token_ids"
_MOST_ENDS = 48  # a key is read up to 511 characters
KNOWN_NAMES = END_NAMES | FILL_NAMES | SHOWN_NAMES
OWN_ENDS = (
    {"<|return|>", "<|call|>"},
    {"<|return|>", "<|calls|>"},
    {"<|flush|>", "<|call|>"},
    {"<|flush|>", "<|calls|>"},
)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values used if the metadata has none."""

    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    add_bos: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """Tokens and how llama.cpp treats them.

    Attributes:
        tokens: by id; no two are equal.
        types: llama.cpp's token types, [tokens], int32.
        bos_id, eos_id, unk_id: token ids, or None.
        add_bos, add_eos: whether a prompt gets them.

    """

    tokens: list[str]
    types: Any
    bos_id: int | None
    eos_id: int | None
    unk_id: int | None
    add_bos: bool
    add_eos: bool

    @classmethod
    def read(cls, header: GgufHeader, defaults: Defaults) -> Vocabulary:
        """Read the vocabulary from a header.

        Raises:
            BundleError: no tokens, duplicate tokens, or types that do not match.

        """
        tokens = _tokens(header)
        types = _types(header, len(tokens))

        def special(name: str, default: int | None) -> int | None:
            # As in llama.cpp: an id outside the vocabulary is ignored.
            found = header.number(f"tokenizer.ggml.{name}_token_id", -1)
            if 0 <= found < len(tokens):
                return found
            return default if default is not None and default < len(tokens) else None

        bos_id, eos_id = special("bos", defaults.bos_id), special("eos", defaults.eos_id)
        _retype(tokens, types)
        return cls(
            tokens=tokens,
            types=types,
            bos_id=bos_id,
            eos_id=eos_id,
            unk_id=special("unknown", defaults.unk_id),
            add_bos=bos_id is not None
            and header.flag("tokenizer.ggml.add_bos_token", defaults.add_bos),
            add_eos=eos_id is not None and header.flag("tokenizer.ggml.add_eos_token", False),
        )


def _tokens(header: GgufHeader) -> list[str]:
    listed = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(listed, list) or not listed:
        raise wrong(header, "it holds no tokens: give a GGUF with its tokenizer")
    tokens = [token or f"[EMPTY_{id}]" for id, token in enumerate(listed)]
    if len(set(tokens)) < len(tokens):
        twice = Counter(tokens).most_common(1)[0][0]
        raise wrong(header, f"the token {one_line(twice)!r} appears twice: the file is damaged")
    if not is_utf8("".join(tokens)):
        raise wrong(header, "a token is not UTF-8: the file is damaged")
    return tokens


def is_utf8(text: str) -> bool:
    """Return whether a file's text was UTF-8, rather than bytes that became lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _types(header: GgufHeader, count: int) -> Any:
    listed = header.metadata.get("tokenizer.ggml.token_type")
    if listed is None:
        return np.full(count, NORMAL, np.int32)
    if not isinstance(listed, np.ndarray) or listed.dtype != np.int32 or len(listed) < count:
        raise wrong(header, f"expected {count} token types: the file is damaged")
    return listed[:count].copy()


def _retype(tokens: list[str], types: Any) -> None:
    """Give tokens that are known by name the type that llama.cpp gives them."""
    ids = {token: id for id, token in enumerate(tokens) if token in KNOWN_NAMES}
    types[[id for name, id in ids.items() if name not in SHOWN_NAMES]] = CONTROL
    types[[id for name, id in ids.items() if name in SHOWN_NAMES]] = USER_DEFINED
    # If a model ends its texts with other tokens, these two do not end a text.
    if "<|end|>" in ids and any(ids.keys() >= own for own in OWN_ENDS):
        types[ids["<|end|>"]] = USER_DEFINED
    if "</s>" in ids and "<|tool_response>" in ids:
        types[ids["</s>"]] = NORMAL


def end_ids(header: GgufHeader) -> list[int]:
    """Return the tokens that end a text: those that a file names so, and those known by name."""
    tokens = _tokens(header)
    if listed := listed_ends(header.text(ENDS), len(tokens)):
        return listed
    named = [header.number(f"tokenizer.ggml.{name}_token_id", -1) for name in ("eos", "eot", "eom")]
    types = _types(header, len(tokens))
    _retype(tokens, types)
    known = [id for id, token in enumerate(tokens) if token in END_NAMES and types[id] == CONTROL]
    return [id for id in dict.fromkeys([*named, *known]) if 0 <= id < len(tokens)]


def listed_ends(value: str | None, count: int) -> list[int]:
    """Return what a file lists under ``ENDS``; nothing if it does not, or not as expected.

    Args:
        value: of that key, or None.
        count: tokens of the vocabulary.

    """
    parts = (value or "").split(",", _MOST_ENDS)
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return []
    found = list(dict.fromkeys(map(int, parts)))
    return found if max(found) < count else []


def wrong(header: GgufHeader, message: str) -> BundleError:
    """Return an error about a file's tokenizer."""
    return BundleError(f"{one_line(str(header.path))}: the tokenizer: {message}")
