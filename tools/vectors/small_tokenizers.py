"""Small tokenizers of the kinds that exported models have, trained on generated text.

Training is deterministic: the same version of the tokenizers library gives the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

# How the models of each family split a text, apart from GPT-2, whose pattern the library has.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
_VOCABULARY = 520
# Those whose merges are written as in files of before 2024.
_OLD = ("digits", "metaspace")
_TEXT = (
    "the a of and to in is that it he was for on are as with his they be at one have this from "
    "def return class import print value index range while True None self length token "
    "naïve café Größe Straße año garçon привет мир слово данные 世界 你好 时间 日本 こんにちは "
    "데이터 한국어 สวัสดี مرحبا שלום नमस्ते 2024 100 3.14 42 007 don't we'll I'm they've it's"
)
_MARKS = (". ", ", ", "\n", "\n\n", ": ", " (", ") ", "    ", " = ", "\t", "! ", '"', " - ", "🙂 ")


def make() -> dict[str, str]:
    """Return each tokenizer's ``tokenizer.json`` by its name."""
    return {name: _written(build(), old=name in _OLD) for name, build in KINDS.items()}


def corpus() -> list[str]:
    """Return generated texts with words and marks of several scripts."""
    rng = random.Random(32)
    words = _TEXT.split(" ")
    weights = [1 / (rank + 3) for rank in range(len(words))]
    texts = []
    for _ in range(60):
        parts = []
        for word in rng.choices(words, weights, k=60):
            shown = rng.choices((word, word.title(), word.upper()), (8, 2, 1))[0]
            parts += [shown, rng.choices((" ", rng.choice(_MARKS)), (4, 1))[0]]
        texts.append("".join(parts))
    return texts


def gpt2() -> Tokenizer:
    """Byte-level with GPT-2's split pattern; added tokens inside words."""
    tokenizer = _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.add_tokens([
        AddedToken("<tool>"),
        AddedToken("<tool>s"),
        AddedToken("    ", normalized=False),
        AddedToken("zebra", normalized=False),
    ])  # fmt: skip
    return tokenizer


def llama3() -> Tokenizer:
    """Byte-level with digits by threes, whole words taken before merges, BOS in front."""
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>",
               "<|end_header_id|>"]  # fmt: skip
    tokenizer = _byte_level(_split(LLAMA3_SPLIT), special)
    parsed = json.loads(tokenizer.to_str())
    vocab = parsed["model"]["vocab"]
    # No merges lead to these: they are found as whole words only.
    for word in (" zebra", "zebra", " unmergeable", "世界时间", "123"):
        vocab.setdefault(_as_characters(word), len(vocab))
    parsed["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(parsed))
    front = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))],
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), front])
    return tokenizer


def qwen() -> Tokenizer:
    """Byte-level with single digits, after NFC; added tokens that are not special."""
    tokenizer = _byte_level(
        _split(QWEN_SPLIT), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC()
    )
    tokenizer.add_tokens([AddedToken("<think>", normalized=False),
                          AddedToken("</think>", normalized=False)])  # fmt: skip
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def digits() -> Tokenizer:
    """GPT-2's pattern after each digit became a piece of its own."""
    return _byte_level(
        pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]),
        ["<|endoftext|>"],
    )  # fmt: skip


def llama2() -> Tokenizer:
    """SentencePiece's kind: a space in front, byte tokens for what has none, BOS."""
    tokenizer = _pieces(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None
    )
    tokenizer.decoder = decoders.Sequence([*_piece_decoders(), decoders.Strip(" ", 1, 0)])
    return _with_bos(tokenizer)


def metaspace() -> Tokenizer:
    """The same by the pre-tokenizer Metaspace, as newer files have it; no BOS."""
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer = _pieces(None, space)
    tokenizer.decoder = decoders.Sequence([*_piece_decoders(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def gemma() -> Tokenizer:
    """Spaces become marks and none is added in front; runs of them are added tokens."""
    tokenizer = _pieces(
        normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")
    )
    tokenizer.decoder = decoders.Sequence(_piece_decoders())
    tokenizer.add_tokens([AddedToken("▁▁", normalized=False), AddedToken("\n\n", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<start_of_turn>", normalized=False)])
    return _with_bos(tokenizer)


def added() -> Tokenizer:
    """Added tokens that take white space beside them, as Phi's and masks do."""
    tokenizer = _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.add_special_tokens([
        AddedToken("<|user|>", rstrip=True, normalized=False),
        AddedToken("<mask>", lstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
    ])  # fmt: skip
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": gpt2,
    "llama3": llama3,
    "qwen": qwen,
    "digits": digits,
    "llama2": llama2,
    "metaspace": metaspace,
    "gemma": gemma,
    "added": added,
}


def _split(pattern: str) -> Any:
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip


def _byte_level(pre_tokenizer: Any, special: Sequence[str], normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def _pieces(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    """Return a tokenizer with byte tokens, trained on words with the mark in front."""
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY + 100,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        limit_alphabet=150,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    parsed = json.loads(tokenizer.to_str())
    # The trainer lists the byte tokens among the special ones; they are text.
    parsed["added_tokens"] = [t for t in parsed["added_tokens"] if t["content"] in special]
    parsed["normalizer"], parsed["pre_tokenizer"] = None, None
    tokenizer = Tokenizer.from_str(json.dumps(parsed))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def _piece_decoders() -> list[Any]:
    return [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _with_bos(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def _as_characters(word: str) -> str:
    """Return a word as the vocabulary of a byte-level tokenizer writes it."""
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ((written, _),) = whole.pre_tokenize_str(word)
    return str(written)


def _written(tokenizer: Tokenizer, *, old: bool) -> str:
    """Return its JSON, a section to a line; in old files a merge is a text with a space."""
    parsed = json.loads(tokenizer.to_str())
    if old:
        parsed["model"]["merges"] = [" ".join(merge) for merge in parsed["model"]["merges"]]
    lines = [
        f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False, separators=(',', ':'))}"
        for name, part in parsed.items()
    ]
    return "{" + ",\n".join(lines) + "}\n"
