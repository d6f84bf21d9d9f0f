"""Records what transformers makes of texts with small tokenizers of many kinds; needs no torch.

    python tests/golden/record_tokenizers.py make          # with edgedec's environment
    python tests/golden/record_tokenizers.py record        # with each release of transformers

``make`` trains the tokenizers on the text below and writes each folder's files into one JSON file
of ``tests/golden/tokenizers``. ``record`` adds the ids and the texts of ``AutoTokenizer``, under
its release, and says where releases differ.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
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

HERE = Path(__file__).parent / "tokenizers"
MARK = "\u2581"
CORPUS = [
    "The river ran past the old mill, and the miller counted the sacks: 12, 120, 1200, 2024.",
    "12 120 1200 12345 1234 123 12 in 2024 and 2024, of 1200 and 1200, of 345 and 345",
    "We don't know what they'd say; it's the same thing that we've heard before.",
    "def total(values):\n    return sum(value for value in values if value is not None)\n",
    "Größe und Straße, façade, naïve café, señor, мир и слово, 世界 时间, \U0001f600",
    "  two  spaces,   three   spaces\tand a tab\n\nand two lines\n",
]
TEXTS = [
    "The miller's values",
    "the river  ran   past\nthe mill\n\n  end ",
    " leading space",
    "1 12 123 1234 12345 3.14",
    "Größe naïve cafe\u0301 \uff21\uff11 \ufb01 \u00bd \u0130",
    "世界 \U0001f600 мир\u200b",
    "it's we'd DON'T x'y",
    "",
    " ",
    "<s>The <|end|> river</s>",
    "a<TOOL>b <TOOL> c",
    "x <left> y <right> z <both> w",
    "word words inword WORD",
    "Café CAFÉ",
    "tab\t\ttabs\r\nline",
    MARK + "mark" + MARK + " here",
]
NAMED = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
SPECIAL = ["<unk>", "<s>", "</s>", "<|end|>"]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
BOS = processors.TemplateProcessing("<s> $A", "<s> $A $B", special_tokens=[("<s>", 1)])
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast", **NAMED}


def bytes_bpe(before: Any, *, normalizer: Any = None, processor: Any = None) -> Tokenizer:
    """A tokenizer of bytes whose texts are split by ``before``."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = GPT2, decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=350, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    made.train_from_iterator(CORPUS, trainer)
    made.pre_tokenizer = before  # only now, so that the vocabulary has what it must not join
    if processor is not None:
        made.post_processor = processor
    return made


def pieces(model: str, before: Any, normalizer: Any, after: list[Any]) -> Tokenizer:
    """A tokenizer of pieces with byte fallback, of BPE or Unigram."""
    if model == "BPE":
        made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        kind, size, more = trainers.BpeTrainer, 400, {}
    else:
        made, kind, size = Tokenizer(models.Unigram()), trainers.UnigramTrainer, 160
        more = {"unk_token": "<unk>"}
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    named = [*SPECIAL, *(fallback if model == "BPE" else [])]
    for section, part in (("normalizer", normalizer), ("pre_tokenizer", before)):
        if part is not None:
            setattr(made, section, part)
    trainer = kind(vocab_size=size, special_tokens=named, show_progress=False, **more)
    made.train_from_iterator(CORPUS, trainer)
    parsed = json.loads(made.to_str())
    parsed["added_tokens"] = [t for t in parsed["added_tokens"] if t["content"] in SPECIAL]
    if model == "Unigram":
        parsed["model"]["vocab"] += [[name, -12.0] for name in fallback]
        parsed["model"]["byte_fallback"] = True
    made = Tokenizer.from_str(json.dumps(parsed))
    made.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                      decoders.Fuse(), *after])  # fmt: skip
    made.post_processor = BOS
    return made


def adding(made: Tokenizer, **flags: Any) -> Tokenizer:
    """The same with added tokens of every flag, in tokenizer.json."""
    made.add_tokens([
        AddedToken("<TOOL>", special=False, **flags),
        AddedToken("<left>", lstrip=True, special=False, **flags),
        AddedToken("<right>", rstrip=True, special=True, **flags),
        AddedToken("<both>", lstrip=True, rstrip=True, special=True, **flags),
        AddedToken("word", single_word=True, special=False, **flags),
        AddedToken("Café", special=False, **flags),
    ])  # fmt: skip
    return made


def llama(**more: Any) -> Tokenizer:
    """Llama 2's: a mark before every piece of text."""
    normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    return pieces("BPE", None, normalizer, [decoders.Strip(" ", 1, 0)])


def first(scheme: str) -> Tokenizer:
    """As later Llamas and Mistral: Metaspace, with a mark at the beginning alone."""
    made = pieces("BPE", pre_tokenizers.Metaspace(MARK, scheme, False), None, [])
    if scheme != "never":
        made.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                          decoders.Fuse(), decoders.Strip(" ", 1, 0)])  # fmt: skip
    return made


def gemma() -> Tokenizer:
    before = pre_tokenizers.Split(" ", "merged_with_previous")
    return pieces("BPE", before, normalizers.Replace(" ", MARK), [])


def unigram(*steps: Any) -> Tokenizer:
    normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    made = pieces("Unigram", pre_tokenizers.Metaspace(MARK, "always", True), normalizer, [])
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(MARK, "always")])
    return made


def word_piece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer, made.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=SPECIAL, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    return made


def words() -> Tokenizer:
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(CORPUS, trainers.WordLevelTrainer(special_tokens=SPECIAL,
                                                               show_progress=False))  # fmt: skip
    return made


def split(*expressions: str) -> Any:
    cuts = [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]
    return pre_tokenizers.Sequence([*cuts, BYTES])


def whole(made: Tokenizer) -> Tokenizer:
    parsed = json.loads(made.to_str())
    parsed["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(parsed))


GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
CLEANED = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.StripAccents()]
LLAMA = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "legacy": True, **NAMED}
# By name: the tokenizer, and tokenizer_config.json.
KINDS: dict[str, tuple[Callable[[], Tokenizer], dict[str, Any]]] = {
    "gpt2": (lambda: bytes_bpe(GPT2), {**GENERIC, "tokenizer_class": "GPT2TokenizerFast"}),
    "space in front": (
        lambda: bytes_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        {**GENERIC, "add_prefix_space": True}),
    "space in front, by the configuration": (
        lambda: bytes_bpe(GPT2), {**GENERIC, "add_prefix_space": True}),
    "no space in front, by the configuration": (
        lambda: bytes_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
        {**GENERIC, "add_prefix_space": False}),
    "digits one by one": (
        lambda: bytes_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), GPT2])), GENERIC),
    "digits in threes": (lambda: bytes_bpe(split(r"\p{N}{1,3}", LLAMA3)), GENERIC),
    "qwen2": (
        lambda: bytes_bpe(split(LLAMA3.replace("{1,3}", "")), normalizer=normalizers.NFC()),
        {**GENERIC, "tokenizer_class": "Qwen2TokenizerFast"}),
    "llama 3": (lambda: whole(bytes_bpe(split(LLAMA3), processor=BOS)), GENERIC),
    "bytes, normalised": (
        lambda: bytes_bpe(GPT2, normalizer=normalizers.Sequence(CLEANED)), GENERIC),
    "llama 2": (llama, LLAMA),
    "mark at the beginning alone": (lambda: first("first"), {**GENERIC}),
    "no mark in front": (lambda: first("never"), {**GENERIC}),
    "gemma": (gemma, {**NAMED, "tokenizer_class": "GemmaTokenizerFast", "add_bos_token": True}),
    "unigram": (lambda: unigram(normalizers.NFKC()), GENERIC),
    "unigram, normalised": (
        lambda: unigram(normalizers.Nmt(), *CLEANED, normalizers.Strip(left=False)), GENERIC),
    "added to bytes": (lambda: adding(bytes_bpe(GPT2), normalized=False), GENERIC),
    "added to bytes, normalised": (
        lambda: adding(
            bytes_bpe(GPT2, normalizer=normalizers.Lowercase()), normalized=True), GENERIC),
    "added to pieces": (lambda: adding(llama(), normalized=False), {**LLAMA}),
    "added to pieces, normalised": (lambda: adding(llama(), normalized=True), {**LLAMA}),
    "added by the configuration": (lambda: bytes_bpe(GPT2), {**GENERIC, "added_tokens_decoder": {
        "350": {"content": "<TOOL>", "special": False, "normalized": False, "lstrip": False,
                "rstrip": False, "single_word": False},
        "351": {"content": "<left>", "special": True, "normalized": False, "lstrip": True,
                "rstrip": False, "single_word": False},
        "352": {"content": "word", "special": False, "normalized": True, "lstrip": False,
                "rstrip": False, "single_word": True}}}),
    **{
        name: (lambda: bytes_bpe(GPT2), {**GENERIC, **entries})
        for name, entries in {
            "named, not in the vocabulary": {"additional_special_tokens": ["<TOOL>", "<left>"]},
            "an end that is not in the vocabulary": {"eos_token": "<TOOL>"},
            "an end that is a word": {"eos_token": "th"},
            "a null": {"unk_token": None, "pad_token": None},
            "an object": {"eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": True,
                                        "rstrip": False, "normalized": False, "special": True,
                                        "single_word": False}},
            "extra special tokens": {"extra_special_tokens": {"image_token": "<TOOL>"}},
            "a class of its own": {"tokenizer_class": "TokenizersBackend"},
            "no class": {"tokenizer_class": None},
            "a flag for bos of bytes": {
                "add_bos_token": True, "tokenizer_class": "GPT2TokenizerFast"},
            "flags of no class": {"add_bos_token": True, "add_eos_token": True},
            "not special in the configuration": {"added_tokens_decoder": {
                "3": {"content": "<|end|>", "special": False, "normalized": False, "lstrip": False,
                      "rstrip": False, "single_word": False}}},
            "with the space in the configuration": {"added_tokens_decoder": {
                "3": {"content": "<|end|>", "special": True, "normalized": False, "lstrip": True,
                      "rstrip": True, "single_word": False}}},
        }.items()
    },
    "wordpiece": (word_piece, {**GENERIC}),
    "words": (words, {**GENERIC}),
}  # fmt: skip


def make() -> None:
    HERE.mkdir(exist_ok=True)
    for name, (build, config) in KINDS.items():
        entry = {
            "tokenizer": json.loads(build().to_str()), "config": config, "texts": TEXTS,
            "recorded": [],
        }  # fmt: skip
        write(name, entry)


def write(name: str, entry: dict[str, Any]) -> None:
    text = json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
    file = HERE / f"{name.replace(',', '').replace(' ', '-')}.json"
    file.write_text(text + "\n", "utf-8")


def record() -> None:
    import transformers

    for name in KINDS:
        file = HERE / f"{name.replace(',', '').replace(' ', '-')}.json"
        entry = json.loads(file.read_text("utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            for part in ("tokenizer", "config"):
                beside = "tokenizer.json" if part == "tokenizer" else "tokenizer_config.json"
                (Path(folder) / beside).write_text(json.dumps(entry[part]), "utf-8")
            try:
                made = transformers.AutoTokenizer.from_pretrained(folder)
            except ValueError as error:  # a class that this release does not have
                sys.stdout.write(f"{name}: {error}\n")
                continue
        found = {
            "ids": [made.encode(text) for text in entry["texts"]],
            "bare": [made.encode(text, add_special_tokens=False) for text in entry["texts"]],
        }
        found["decoded"] = [
            made.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            for ids in found["ids"]
        ]
        names = (getattr(made, one, None) for one in ("bos_token", "eos_token"))
        found["named"] = [name if isinstance(name, str) else None for name in names]
        add(name, entry, found, transformers.__version__)


def add(name: str, entry: dict[str, Any], found: dict[str, Any], release: str) -> None:
    """Write what a release makes of it, beside the release that makes the same."""
    for one in entry["recorded"]:
        one["by"] = [other for other in one["by"] if other != release]
    kept = [one for one in entry["recorded"] if one["by"]]
    same = next((one for one in kept if all(one[key] == found[key] for key in found)), None)
    if same is None:
        kept.append({"by": [release], **found})
    else:
        same["by"] = sorted([*same["by"], release])
    for one in kept[:-1]:
        other = kept[-1]
        if one["named"] != other["named"]:
            sys.stdout.write(
                f"{name}: {one['by']} {one['named']}, {other['by']} {other['named']}\n"
            )
        for index, text in enumerate(entry["texts"]):
            for key in found.keys() - {"named"}:
                if one[key][index] != other[key][index]:
                    sys.stdout.write(f"{name}: {key} of {text!r}: {one['by']} {one[key][index]},"
                                     f" {other['by']} {other[key][index]}\n")  # fmt: skip
    write(name, {**entry, "recorded": kept})


if __name__ == "__main__":
    {"make": make, "record": record}[sys.argv[1]]()
