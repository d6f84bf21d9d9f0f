"""Every part of a tokenizer that the library ``tokenizers`` has is known here, or named.

ONNX bundles run it with the library itself. A GGUF file and a phone have readers of their own: what
theirs do not do is refused by name, never done in another way.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny_tokenizers
from tiny_models import tiny_checkpoint
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers import Tokenizer as Backend

from edgedec.errors import BundleError, ExportError
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.tokenizer import TokenizerContent
from edgedec.text.equivalent import simplify
from edgedec.text.portable import unknown_parts
from edgedec.text.tokenizer import Tokenizer

MARK = "\u2581"
TEXTS = ["def add(left, right):", " two  words ", "naïve café 😀", "a <think> 思 b", ""]
BYTES = decoders.ByteLevel()
FALLBACK, FUSE, SPACES = decoders.ByteFallback(), decoders.Fuse(), decoders.Replace(MARK, " ")
LEFT = decoders.Strip(" ", 1, 0)


def byte_level(decoder: Any) -> Backend:
    """A tokenizer of bytes with a decoder; its added token has only letters of that alphabet."""
    made = Backend.from_str(tiny_tokenizers.byte_level().to_str())
    made.decoder = decoder
    return made


def unpacked(decoder: Any) -> Backend:
    """As transformers 4.57 unpacks it from a GGUF file: with byte fallback and an unknown token."""
    parsed = json.loads(byte_level(decoder).to_str())
    parsed["model"] |= {"byte_fallback": True, "unk_token": "<|end|>", "fuse_unk": True}
    parsed["normalizer"] = {"type": "Sequence", "normalizers": []}
    return Backend.from_str(json.dumps(parsed))


def pieces(decoder: Any) -> Backend:
    made = tiny_tokenizers.llama()
    made.decoder = decoder
    return made


# Decoders as transformers' converters write them (its convert_slow_tokenizer and GGUF converters),
# and what the scheme made of them has.
WRITTEN: dict[str, tuple[Backend, dict[str, Any]]] = {
    "bytes": (byte_level(BYTES), {"byte_level": True}),
    "bytes in a sequence": (byte_level(decoders.Sequence([BYTES])), {"byte_level": True}),
    "SmolLM2's GGUF, unpacked": (
        unpacked(decoders.Sequence([FALLBACK, FUSE, SPACES, BYTES])), {"byte_level": True}),
    "Llama 3's GGUF, unpacked, with a space": (
        unpacked(decoders.Sequence([FALLBACK, FUSE, SPACES, BYTES, LEFT])),
        {"byte_level": True, "strip": (" ", 1)}),
    "bytes that are fused again": (
        byte_level(decoders.Sequence([BYTES, FUSE])), {"byte_level": True}),
    "fused before": (byte_level(decoders.Sequence([FUSE, BYTES])), {"byte_level": True}),
    "pieces": (
        pieces(decoders.Sequence([SPACES, FALLBACK, FUSE])), {"replacements": ((MARK, " "),)}),
    "pieces and a space": (
        pieces(decoders.Sequence([SPACES, FALLBACK, FUSE, LEFT])), {"strip": (" ", 1)}),
    "Llama 2's GGUF, unpacked": (
        pieces(decoders.Sequence([FALLBACK, FUSE, SPACES, LEFT])),
        {"strip": (" ", 1), "replacements": ((MARK, " "),)}),
    "Gemma's GGUF, unpacked": (
        pieces(decoders.Sequence([FALLBACK, FUSE, SPACES])), {"replacements": ((MARK, " "),)}),
    "marks between the two": (
        pieces(decoders.Sequence([FALLBACK, SPACES, FUSE])), {"byte_fallback": True}),
    "Metaspace": (pieces(decoders.Metaspace()), {"mark": MARK, "drop_first_mark": True}),
    "Metaspace that keeps its space": (
        pieces(decoders.Metaspace(prepend_scheme="never")), {"drop_first_mark": False}),
    "Metaspace in a sequence": (
        pieces(decoders.Sequence([decoders.Metaspace()])), {"drop_first_mark": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_texts_are_the_librarys(tmp_path: Path, name: str) -> None:
    library, fields = WRITTEN[name]
    tokenizer = Tokenizer.load(tiny_tokenizers.save(library, tmp_path))
    assert {field: getattr(tokenizer.scheme, field) for field in fields} == fields
    for text in TEXTS:
        ids = library.encode(text).ids
        assert tokenizer.encode(text) == ids
        # what an added token beyond the alphabet does to the library's text: see below
        if "思" not in text:
            assert tokenizer.decode(ids) == library.decode(ids)
    rng = random.Random(name)
    for _ in range(50):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(12)]
        stream = tokenizer.stream()
        assert "".join(map(stream.push, ids)) + stream.flush() == tokenizer.decode(ids)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_anew_runs_on_a_phone(tmp_path: Path, name: str) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizers.save(WRITTEN[name][0], tmp_path))
    found = unknown_parts(json.loads(tokenizer.backend.to_str()))
    strips = tokenizer.scheme.byte_level and tokenizer.scheme.strip[1]
    assert found == ["decoder Strip after ByteLevel, expected ByteLevel alone"] * bool(strips)


def test_the_library_alone_shows_bytes_as_letters() -> None:
    """Why a text with an added token beyond the alphabet is not compared above."""
    library, text = WRITTEN["SmolLM2's GGUF, unpacked"][0], "a b<think> 思"
    ids = library.encode(text).ids
    assert "\u0120b" in library.decode(ids)
    simplify(made := Backend.from_str(library.to_str()))
    assert made.decode(ids) != library.decode(ids)


@pytest.mark.parametrize(
    "decoder",
    [
        decoders.Sequence([LEFT, BYTES]),
        decoders.Sequence([decoders.Replace("a", "b"), BYTES]),
        decoders.Sequence([decoders.Replace(Regex(MARK), " "), BYTES]),
        decoders.Sequence([BYTES, decoders.Replace("a", "b")]),
    ],
)
def test_what_changes_bytes_is_not_left_out(decoder: Any, tmp_path: Path) -> None:
    """The control: these do something, so they are refused."""
    with pytest.raises(BundleError, match="is unknown here"):
        Tokenizer.load(tiny_tokenizers.save(unpacked(decoder), tmp_path))


def test_fallback_to_bytes_that_have_no_other_token_stays(tmp_path: Path) -> None:
    parsed = json.loads(unpacked(BYTES).to_str())
    vocab = parsed["model"]["vocab"]
    vocab["<0x61>"] = vocab.pop("a")
    parsed["model"]["merges"] = [m for m in parsed["model"]["merges"] if "a" not in "".join(m)]
    for token in [t for t in vocab if "a" in t and len(t) > 1 and t != "<0x61>"]:
        vocab[f"unused {len(vocab)} {token}"] = vocab.pop(token)
    library = Backend.from_str(json.dumps(parsed))
    tokenizer = Tokenizer.load(tiny_tokenizers.save(library, tmp_path))
    assert tokenizer.backend.model.byte_fallback
    assert tokenizer.encode("a") == library.encode("a").ids == [vocab["<0x61>"]]


# -- parts by the library's own list --------------------------------------------------------------

DECODERS = {
    "ByteLevel": BYTES, "Replace": SPACES, "ByteFallback": FALLBACK, "Fuse": FUSE,
    "Strip": None, "Metaspace": decoders.Metaspace(), "Sequence": decoders.Sequence([SPACES]),
    "WordPiece": None, "BPEDecoder": None, "CTC": None,
}  # fmt: skip
NORMALIZERS = {
    "BertNormalizer": normalizers.BertNormalizer(), "NFD": normalizers.NFD(),
    "NFKD": normalizers.NFKD(), "NFC": normalizers.NFC(), "NFKC": normalizers.NFKC(),
    "Sequence": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]),
    "Lowercase": normalizers.Lowercase(), "Prepend": normalizers.Prepend("x"),
    "Strip": normalizers.Strip(), "StripAccents": normalizers.StripAccents(),
    "Nmt": normalizers.Nmt(), "Precompiled": None, "Replace": normalizers.Replace("a", "b"),
    "ByteLevel": normalizers.ByteLevel(),
}  # fmt: skip
PRE_TOKENIZERS = {
    "BertPreTokenizer": pre_tokenizers.BertPreTokenizer(),
    "ByteLevel": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "CharDelimiterSplit": pre_tokenizers.CharDelimiterSplit("x"),
    "Digits": pre_tokenizers.Digits(True), "FixedLength": pre_tokenizers.FixedLength(5),
    "Metaspace": pre_tokenizers.Metaspace("_"), "Punctuation": pre_tokenizers.Punctuation(),
    "Sequence": pre_tokenizers.Sequence([pre_tokenizers.Whitespace()]),
    "Split": pre_tokenizers.Split(Regex(r"\d"), "isolated"),
    "UnicodeScripts": pre_tokenizers.UnicodeScripts(),
    "Whitespace": pre_tokenizers.Whitespace(), "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
}  # fmt: skip
PROCESSORS = {
    "BertProcessing": processors.BertProcessing(("</s>", 2), ("<s>", 1)),
    "ByteLevel": processors.ByteLevel(),
    "RobertaProcessing": processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
    "Sequence": processors.Sequence([processors.ByteLevel()]),
    "TemplateProcessing": processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)]),
}


@pytest.mark.parametrize(
    ("module", "base", "known"),
    [
        (decoders, "Decoder", DECODERS),
        (normalizers, "Normalizer", NORMALIZERS),
        (pre_tokenizers, "PreTokenizer", PRE_TOKENIZERS),
        (processors, "PostProcessor", PROCESSORS),
    ],
)
def test_the_tables_name_all_that_the_library_has(
    module: ModuleType, base: str, known: dict[str, Any]
) -> None:
    base_class = getattr(module, base)
    found = {
        name for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, base_class) and one is not base_class
    }  # fmt: skip
    assert found <= known.keys()  # older releases have less


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_alone(tmp_path: Path, name: str) -> None:
    decoder = DECODERS[name]
    if decoder is None:
        arguments = {"Strip": (" ", 1, 0)}.get(name, ())
        made = pieces(getattr(decoders, name)(*arguments))
        with pytest.raises(BundleError, match=rf"decoder \({name}\) is unknown here"):
            Tokenizer.load(tiny_tokenizers.save(made, tmp_path))
        return
    made = byte_level(decoder) if name == "ByteLevel" else pieces(decoder)
    tokenizer = Tokenizer.load(tiny_tokenizers.save(made, tmp_path))
    ids = made.encode("two words").ids
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.flush() == made.decode(ids)


def parts() -> list[tuple[str, str, Any]]:
    tables = (("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS))
    return [(section, name, part) for section, table in tables
            for name, part in table.items() if part is not None]  # fmt: skip


def changed(section: str, part: Any, kind: str) -> Backend:
    """A tokenizer with this part as well as its own."""
    parsed = json.loads(
        (tiny_tokenizers.llama() if kind == "pieces" else byte_level(BYTES)).to_str()
    )
    # The library fails at an added token of which a normalizer leaves nothing.
    parsed["added_tokens"] = [one for one in parsed["added_tokens"] if one["content"].strip()]
    made = Backend.from_str(json.dumps(parsed))
    if section == "normalizer":
        own = [made.normalizer] if made.normalizer is not None else []
        made.normalizer = normalizers.Sequence([part, *own])
    else:
        own = [made.pre_tokenizer] if made.pre_tokenizer is not None else []
        made.pre_tokenizer = pre_tokenizers.Sequence([part, *own])
    return made


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@pytest.mark.parametrize(("section", "name", "part"), parts())
def test_what_a_gguf_file_cannot_have_is_refused(
    tmp_path: Path, section: str, name: str, part: Any, kind: str
) -> None:
    pytest.importorskip("gguf", reason="a GGUF file is written with the extra export")
    from edgedec.export.gguf.tokenizer import tokenizer_keys

    library = changed(section, part, kind)
    opened = Checkpoint.open(tiny_checkpoint(tmp_path / "m", vocab_size=410))
    tiny_tokenizers.save(library, opened.path)
    # Every other format has it from the library itself.
    tokenizer = Tokenizer.load(opened.path)
    for text in TEXTS:
        assert tokenizer.encode(text) == library.encode(text).ids

    def keys() -> dict[str, Any]:
        return tokenizer_keys(opened, TokenizerContent(opened.path), 410)

    if name == "NFC":  # as llama.cpp's own conversion does
        assert keys()
        return
    if (name, kind) == ("Digits", "bytes"):
        assert keys()["tokenizer.ggml.pre"] == "smollm"
        return
    if section == "pre_tokenizer" and kind == "bytes":  # recognised by what it does
        with pytest.raises(ExportError, match="does not have this tokenizer's pre-tokenizer"):
            keys()
        return
    inner = {"Sequence": "NFKC" if section == "normalizer" else "Whitespace"}.get(name, name)
    shown = section.replace("_", "-")
    with pytest.raises(ExportError, match=rf"no tokenizer of {kind} with the {shown} {inner}\b"):
        keys()


@pytest.mark.parametrize(("section", "name", "part"), parts())
def test_what_a_phone_does_not_do_is_named(section: str, name: str, part: Any) -> None:
    named = unknown_parts(json.loads(changed(section, part, "bytes").to_str()))
    reads = {
        "normalizer": {"NFC", "Prepend", "Replace"},
        "pre_tokenizer": {"ByteLevel", "Digits", "Metaspace"},
    }
    assert bool(named) == (name not in reads[section])


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_surrounds_a_text_is_seen_by_what_it_does(tmp_path: Path, name: str) -> None:
    pytest.importorskip("gguf", reason="a GGUF file is written with the extra export")
    from edgedec.export.gguf.tokenizer import tokenizer_keys

    library = tiny_tokenizers.llama()
    library.post_processor = PROCESSORS[name]
    opened = Checkpoint.open(tiny_checkpoint(tmp_path / "m", vocab_size=410))
    tiny_tokenizers.save(library, opened.path)
    keys = tokenizer_keys(opened, TokenizerContent(opened.path), 410)
    whole = library.encode("a").ids
    assert keys["tokenizer.ggml.add_bos_token"] is (whole[0] == 1)
    assert keys["tokenizer.ggml.add_eos_token"] is (whole[-1] == 2)


def test_an_added_token_of_the_alphabet_is_text_still(tmp_path: Path) -> None:
    library = unpacked(decoders.Sequence([FALLBACK, FUSE, SPACES, BYTES]))
    library.add_tokens([AddedToken("ø", special=False, normalized=False)])
    tokenizer = Tokenizer.load(tiny_tokenizers.save(library, tmp_path))
    assert tokenizer.decode(tokenizer.encode("x ø")) == "x ø"
