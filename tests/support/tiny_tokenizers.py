"""Tiny tokenizers of both families, trained here in a moment."""

import functools
import json
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CORPUS = [
    "def add(left, right):\n    return left + right\n",
    "The quick brown fox jumps over the lazy dog. Ein Mädchen, naïve café.",
    "for index in range(10): print(index, 'hello world')",
]


@functools.cache
def byte_level() -> Tokenizer:
    """GPT-2's kind; a special token, and an added one that is not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think> 思", special=False), AddedToken("    ")])
    return tokenizer


def sentencepiece(last: list[decoders.Decoder] | None = None) -> Tokenizer:
    """Llama's kind: U+2581 for spaces, byte fallback, BOS in front."""
    tokenizer = _trained_pieces()
    chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*chain, *(last or [])])
    return tokenizer


def llama() -> Tokenizer:
    return sentencepiece([decoders.Strip(" ", 1, 0)])


def metaspace() -> Tokenizer:
    tokenizer = _trained_pieces()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _trained_pieces() -> Tokenizer:
    return Tokenizer.from_str(_pieces_json())


@functools.cache
def _pieces_json() -> str:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[*special, *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    # The trainer marks all of these as special; byte tokens are text.
    parsed = json.loads(tokenizer.to_str())
    parsed["added_tokens"] = [t for t in parsed["added_tokens"] if t["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(parsed))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer.to_str()


KINDS = {"byte-level": byte_level, "llama": llama, "gemma": sentencepiece, "metaspace": metaspace}


def save(tokenizer: Tokenizer, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
