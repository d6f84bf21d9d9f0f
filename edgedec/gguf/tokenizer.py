"""Builds the model's `Tokenizer` from a GGUF's metadata.

Built as the JSON that `tokenizers` reads. It gives the ids that llama.cpp's own tokenizer
gives when the names of special tokens in a text become those tokens. llama.cpp's own is not called,
because a text can make it end the process: for a third of the pre-tokenizers, tekken and gpt-4o
among them, `std::regex` overflows the stack at about 27,000 letters or signs in a row.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.gguf.presplit import PRESPLITS
from edgedec.gguf.vocabulary import (
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    Defaults,
    Vocabulary,
    is_utf8,
    wrong,
)
from edgedec.text.tokenizer import Tokenizer
from edgedec.text.tokenizer_check import one_line_errors

if TYPE_CHECKING:
    import tokenizers

    from edgedec.gguf.header import GgufHeader

KINDS = ("gpt2", "llama", "gemma4")
SPACE = "\u2581"
# The library would take minutes for more; models have thousands at most.
MAX_ADDED = 1 << 16
_Built = tuple[Vocabulary, dict[str, Any], dict[str, Any]]
# Special tokens of Phi-3 swallow the whitespace after them, except these.
_NOT_STRIPPING = frozenset(("<unk>", "<s>", "<|endoftext|>"))


def load_tokenizer(header: GgufHeader) -> Tokenizer:
    """Return a file's tokenizer.

    Raises:
        BundleError: there is none, or it is damaged or of an unknown kind, which the message names.

    """
    kind = header.text("tokenizer.ggml.model")
    if kind is None:
        raise wrong(header, "the file has none: give a GGUF with its tokenizer")
    if kind == "gpt2":
        vocabulary, model, around = _byte_level(header)
    elif kind == "llama":
        vocabulary, model, around = _sentencepiece(header)
    elif kind == "gemma4":
        vocabulary, model, around = _gemma4(header)
    else:
        raise wrong(
            header, f"{one_line(kind)!r} is unknown here: expected one of {', '.join(KINDS)}"
        )
    template = header.text("tokenizer.chat_template")
    if template and not is_utf8(template):
        raise wrong(header, "its chat template is not UTF-8: the file is damaged")
    config = {
        "bos_token": _text_of(vocabulary, vocabulary.bos_id),
        "eos_token": _text_of(vocabulary, vocabulary.eos_id),
        "chat_template": template,
    }
    return Tokenizer(_build(header, vocabulary, model, around), config)


def _byte_level(header: GgufHeader) -> _Built:
    """Build GPT-2's kind: every character of a token is a byte, merges are listed."""
    name = header.text("tokenizer.ggml.pre") or "default"
    cut = PRESPLITS.get(name)
    if cut is None:
        raise wrong(header, f"its pre-tokenizer {one_line(name)!r} is unknown here")
    bos = 11 if cut.has_bos else None
    vocabulary = Vocabulary.read(
        header, Defaults(bos_id=bos, eos_id=11, unk_id=None, add_bos=cut.add_bos)
    )
    splits = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in cut.patterns
    ]
    letters = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
               "use_regex": False}  # fmt: skip
    model = {
        "merges": listed_merges(header, vocabulary.tokens),
        "ignore_merges": cut.whole_words,
    }
    return (
        vocabulary,
        model,
        {
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, letters]},
            "decoder": letters,
        },
    )


def _sentencepiece(header: GgufHeader) -> _Built:
    """Build Llama's kind: U+2581 for a space; the pair that makes the best token merges first."""
    vocabulary = Vocabulary.read(header, Defaults(bos_id=1, eos_id=2, unk_id=0, add_bos=True))
    merges = merges_from_scores(header, vocabulary.tokens)
    prefixed = header.flag("tokenizer.ggml.add_space_prefix", True)
    return vocabulary, _with_bytes(vocabulary, merges), _pieces(prefixed=prefixed)


def _gemma4(header: GgufHeader) -> _Built:
    """Build Gemma's kind: pieces as Llama's, with listed merges that never cross a line end."""
    vocabulary = Vocabulary.read(header, Defaults(bos_id=None, eos_id=None, unk_id=None))
    # llama.cpp adds BOS whatever the file says.
    vocabulary = dataclasses.replace(vocabulary, add_bos=vocabulary.bos_id is not None)
    merges = listed_merges(header, vocabulary.tokens)
    lines = {"type": "Split", "pattern": {"Regex": r"[^\n]+|\n+"}, "behavior": "Isolated",
             "invert": False}  # fmt: skip
    around = {**_pieces(prefixed=False), "pre_tokenizer": lines}
    return vocabulary, _with_bytes(vocabulary, merges), around


def _with_bytes(vocabulary: Vocabulary, merges: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a model that writes text without a token as its bytes."""
    return {
        "merges": merges,
        "unk_token": _text_of(vocabulary, vocabulary.unk_id),
        "fuse_unk": True,
        "byte_fallback": True,
    }


def _pieces(*, prefixed: bool) -> dict[str, Any]:
    """Return the mapping of spaces to U+2581 and back; ``prefixed`` puts one before every text."""
    before = [{"type": "Prepend", "prepend": SPACE}] if prefixed else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefixed else []
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *after,
    ]
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*before, spaces]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
    }


def _added(header: GgufHeader, vocabulary: Vocabulary) -> list[tokenizers.AddedToken]:
    """Return tokens that are matched in a text before anything else."""
    from tokenizers import AddedToken

    name = header.name.lower()
    ids = np.flatnonzero(np.isin(vocabulary.types, (CONTROL, USER_DEFINED, UNKNOWN))).tolist()
    if len(ids) > MAX_ADDED:
        raise wrong(header, f"{len(ids)} special tokens, expected at most {MAX_ADDED}")
    phi3 = "phi-3" in name or "phi3" in name  # as llama.cpp recognises it
    return [
        AddedToken(
            vocabulary.tokens[id],
            rstrip=phi3 and vocabulary.tokens[id] not in _NOT_STRIPPING,
            normalized=False,
            special=vocabulary.types[id] != USER_DEFINED,
        )
        for id in ids
    ]


def _post_processor(vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Return a processor that adds BOS and EOS as the file asks, or None."""
    around = [vocabulary.bos_id if vocabulary.add_bos else None,
              vocabulary.eos_id if vocabulary.add_eos else None]  # fmt: skip
    front, back = (
        [] if id is None else [{"SpecialToken": {"id": vocabulary.tokens[id], "type_id": 0}}]
        for id in around
    )
    if not front and not back:
        return None
    return {
        "type": "TemplateProcessing",
        "single": [*front, {"Sequence": {"id": "A", "type_id": 0}}, *back],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            vocabulary.tokens[id]: {
                "id": vocabulary.tokens[id],
                "ids": [id],
                "tokens": [vocabulary.tokens[id]],
            }
            for id in around
            if id is not None
        },
    }


def _text_of(vocabulary: Vocabulary, id: int | None) -> str | None:
    return None if id is None else vocabulary.tokens[id]


def _build(
    header: GgufHeader, vocabulary: Vocabulary, model: dict[str, Any], around: dict[str, Any]
) -> tokenizers.Tokenizer:
    """Assemble the tokenizer; the model directly, since JSON of its size takes seconds."""
    import tokenizers

    document = {
        "version": "1.0",
        "model": {"type": "BPE", "vocab": {}, "merges": []},
        "post_processor": _post_processor(vocabulary),
        **around,
    }
    ids = {token: id for id, token in enumerate(vocabulary.tokens)}
    added = _added(header, vocabulary)
    # The file determines its tokens only, not the rest of the tokenizer, so no child tries it
    # first.
    with one_line_errors(f"{one_line(str(header.path))}: its tokenizer is damaged"):
        backend = tokenizers.Tokenizer.from_str(json.dumps(document))
        backend.model = tokenizers.models.BPE(vocab=ids, **model)
        backend.add_tokens(added)
        backend.encode("a")
    return backend


# -- merges of a byte-pair tokenizer, best first ------------------------------------------------

# Limit on the work for a vocabulary: the sum of its tokens' squared lengths. Gemma's has 1e7.
MAX_WORK = 1 << 29


def listed_merges(header: GgufHeader, tokens: list[str]) -> list[tuple[str, str]]:
    """Return a file's merges, without those that give no token; BundleError if it lists none."""
    listed = header.metadata.get("tokenizer.ggml.merges")
    if not isinstance(listed, list):
        raise wrong(header, "it lists no merges: the file is damaged, convert it again")
    known = set(tokens)
    found: dict[tuple[str, str], None] = {}
    for merge in listed:
        left, _, right = merge.partition(" ")
        # a split is never after the first character, since a token may begin with a space
        if not left:
            left, _, right = merge[1:].partition(" ")
            left = " " + left
        if left in known and right in known and left + right in known:
            found[left, right] = None
    return list(found)


def merges_from_scores(header: GgufHeader, tokens: list[str]) -> list[tuple[str, str]]:
    """Return the merges that SentencePiece's scores imply.

    llama.cpp merges the neighbours that together form the token with the highest score
    (``llm_tokenizer_spm_session``). So every way to make a token of two others is a merge, ranked
    by that token's score.

    Raises:
        BundleError: there is no score for every token, or the tokens are too long.

    """
    scores = header.metadata.get("tokenizer.ggml.scores")
    if (
        not isinstance(scores, np.ndarray)
        or scores.dtype not in (np.float32, np.int32)
        or len(scores) < len(tokens)
        or np.isnan(scores).any()
    ):
        raise wrong(header, f"expected {len(tokens)} scores: the file is damaged")
    if sum(len(token) ** 2 for token in tokens) > MAX_WORK:
        raise wrong(header, "its tokens are too long: the file is damaged")
    known = set(tokens)
    found: list[tuple[str, str]] = []
    for id in np.argsort(-scores[: len(tokens)].astype(np.float64), kind="stable").tolist():
        token = tokens[id]
        # If two ways overlap in a run of one character, the one with the longer left part comes
        # first.
        for cut in range(len(token) - 1, 0, -1):
            if token[:cut] in known and token[cut:] in known:
                found.append((token[:cut], token[cut:]))
    return found
