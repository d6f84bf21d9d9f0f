"""Tokenizers of many kinds against transformers' vectors, and what a GGUF file makes of them.

``record_tokenizers.py`` made the folders and recorded them with transformers 4.57.6 and 5.24.0.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_checkpoint

from edgedec.errors import BundleError, ExportError
from edgedec.export import tokenizer as exported
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.tokenizer import TokenizerContent
from edgedec.gguf.header import GgufHeader
from edgedec.gguf.tokenizer import load_tokenizer
from edgedec.text.tokenizer import Tokenizer

KINDS = {file.stem: file for file in sorted((Path(__file__).parent / "tokenizers").glob("*.json"))}
OLD, NEW = "4.57.6", "5.24.0"
ROWS = 700
# Where the two differ a folder is read as by the release that wrote its class's name. 5.24 builds a
# Llama's anew instead of reading tokenizer.json, with a mark at the beginning of a text alone; it
# does not read add_prefix_space for this class, and shows normalised added tokens normalised.
DIFFER = {
    "added-to-bytes-normalised", "added-to-pieces", "added-to-pieces-normalised", "llama-2",
    "no-space-in-front-by-the-configuration", "space-in-front-by-the-configuration",
}  # fmt: skip
REFUSED = {"wordpiece": r"decoder \(WordPiece\)", "words": r"decoder \(none\)"}
# Added tokens with letters of the byte alphabet are text here, as in llama.cpp; transformers takes
# them for bytes, so that "é" of an added token is no character.
LITERAL = {"added-to-bytes", "added-to-bytes-normalised"}


def folder(path: Path, kind: str) -> dict[str, Any]:
    """Write a kind's files, and the rows of its model; returns its record."""
    entry: dict[str, Any] = json.loads(KINDS[kind].read_text("utf-8"))
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(json.dumps(entry["tokenizer"]), "utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(entry["config"]), "utf-8")
    if not (path / "config.json").exists():
        (path / "config.json").write_text(json.dumps({"vocab_size": ROWS}), "utf-8")
    return entry


def recorded(entry: dict[str, Any], release: str = OLD) -> dict[str, Any]:
    found = [one for one in entry["recorded"] if release in one["by"]]
    return dict((found or entry["recorded"])[0])


def test_both_releases_are_recorded_of_every_kind() -> None:
    entries = {kind: json.loads(file.read_text("utf-8")) for kind, file in KINDS.items()}
    assert len(entries) >= 34
    for kind, entry in entries.items():
        releases = sorted(release for one in entry["recorded"] for release in one["by"])
        # 4.57 has no class of this name, and none without one and without the model's type.
        alone = kind in ("a-class-of-its-own", "no-class")
        assert releases == ([NEW] if alone else [OLD, NEW])
    assert {kind for kind, entry in entries.items() if len(entry["recorded"]) > 1} == DIFFER


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - REFUSED.keys()))
def test_ids_and_texts_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    entry = folder(tmp_path / "m", kind)
    exported.write(tmp_path / "m", tmp_path / "written")
    said = recorded(entry)
    for place in ("m", "written"):
        tokenizer = Tokenizer.load(tmp_path / place)
        assert [tokenizer.bos_token, tokenizer.eos_token] == said["named"]
        for index, text in enumerate(entry["texts"]):
            ids = said["ids"][index]
            assert tokenizer.encode(text) == ids
            assert tokenizer.encode(text, add_special_tokens=False) == said["bare"][index]
            stream = tokenizer.stream()
            streamed = "".join(map(stream.push, ids)) + stream.flush()
            assert streamed == tokenizer.decode(ids)
            if kind in LITERAL and "Café" in text:
                assert "\ufffd" in said["decoded"][index]
                assert "Café" in streamed
            else:
                assert streamed == said["decoded"][index]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_kind_that_is_not_read_is_named(tmp_path: Path, kind: str) -> None:
    folder(tmp_path, kind)
    with pytest.raises(BundleError, match=REFUSED[kind]):
        Tokenizer.load(tmp_path)


NEW_TOKENS = ["named-not-in-the-vocabulary", "an-end-that-is-not-in-the-vocabulary",
              "extra-special-tokens", "an-end-that-is-a-word"]  # fmt: skip


@pytest.mark.parametrize("kind", NEW_TOKENS)
def test_no_token_gets_an_id_that_the_model_has_no_row_for(tmp_path: Path, kind: str) -> None:
    """transformers gives it one, and fails where a text has it; here its name is text."""
    (tmp_path / "config.json").write_text('{"vocab_size": 350}', "utf-8")
    entry = folder(tmp_path, kind)
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab_size == 350
    assert [tokenizer.encode(text) for text in entry["texts"]] != recorded(entry)["ids"]
    for text in entry["texts"]:
        plain = json.loads(KINDS["gpt2"].read_text("utf-8"))
        assert tokenizer.encode(text) == recorded(plain)["ids"][entry["texts"].index(text)]


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "llama-2": lambda entry: entry["tokenizer"].update(normalizer=None),
    "digits-one-by-one": lambda entry: entry["tokenizer"]["pre_tokenizer"]["pretokenizers"].pop(0),
    "bytes-normalised": lambda entry: entry["tokenizer"]["normalizer"]["normalizers"].pop(),
    "added-to-bytes": lambda entry: entry["tokenizer"]["added_tokens"][-2].update(
        single_word=False),
    "added-to-pieces": lambda entry: entry["tokenizer"]["added_tokens"][-4].update(rstrip=False),
    "space-in-front-by-the-configuration": lambda entry: entry["config"].pop("add_prefix_space"),
    "mark-at-the-beginning-alone": lambda entry: entry["tokenizer"]["pre_tokenizer"].update(
        prepend_scheme="always"),
    "unigram": lambda entry: entry["tokenizer"]["model"].update(byte_fallback=False),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_the_control_each_part_matters(tmp_path: Path, kind: str) -> None:
    entry = folder(tmp_path, kind)
    CHANGES[kind](entry)
    (tmp_path / "tokenizer.json").write_text(json.dumps(entry["tokenizer"]), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(entry["config"]), "utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert [tokenizer.encode(text) for text in entry["texts"]] != recorded(entry)["ids"]


# -- a GGUF file, beside llama.cpp ----------------------------------------------------------------

NO_FILE = {
    "added-to-bytes-normalised": "the normalizer Lowercase",
    "bytes-normalised": "the normalizer NFKC",
    "space-in-front": "does not have this tokenizer's pre-tokenizer",
    "space-in-front-by-the-configuration": "does not have this tokenizer's pre-tokenizer",
    "unigram": "type 'Unigram'",
    "unigram-normalised": "type 'Unigram'",
}
# What the file cannot say, by the texts that llama.cpp reads otherwise; NFC changes a rare one.
LOST = {
    "added-by-the-configuration": ("lstrip of '<left>'", "single_word of 'word'"),
    "added-to-bytes": ("lstrip of '<left>'", "rstrip of '<right>'"),
    "added-to-pieces": ("lstrip of '<left>'", "rstrip of '<right>'"),
    "added-to-pieces-normalised": ("lstrip of '<left>'", "rstrip of '<right>'"),
    "mark-at-the-beginning-alone": ("a space at the beginning of a text alone",),
    "with-the-space-in-the-configuration": ("lstrip of '<|end|>'", "rstrip of '<|end|>'"),
}
OTHERWISE = {
    "added-by-the-configuration": 2, "added-to-bytes": 2, "added-to-pieces": 2,
    "added-to-pieces-normalised": 4, "mark-at-the-beginning-alone": 4, "qwen2": 1,
    "with-the-space-in-the-configuration": 1,
}  # fmt: skip


class Vocabulary:
    """llama.cpp's reading of a file's tokenizer."""

    def __init__(self, file: Path) -> None:
        import llama_cpp

        self.api = llama_cpp
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(file), params)
        assert self.model
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def ids(self, text: str) -> list[int]:
        data = text.encode()
        found = (self.api.llama_token * (len(data) + 8))()
        count = self.api.llama_tokenize(self.vocab, data, len(data), found, len(found), True, True)
        return list(found[:count])

    def text(self, ids: list[int], size: int = 256) -> str:
        parts, buffer = [], (ctypes.c_char * size)()
        for id in ids:
            count = self.api.llama_token_to_piece(self.vocab, id, buffer, size, 0, False)
            parts.append(bytes(buffer[:count]))
        return b"".join(parts).decode("utf-8", "replace")


def written(path: Path, kind: str) -> tuple[dict[str, Any], Path]:
    """A kind's record, and a file with its tokenizer."""
    from edgedec.export.gguf.known import architecture_for
    from edgedec.export.gguf.metadata import model_keys
    from edgedec.export.gguf.tokenizer import tokenizer_keys
    from edgedec.export.gguf.writing import write

    tiny_checkpoint(path / "m", vocab_size=ROWS)
    entry = folder(path / "m", kind)
    source = Checkpoint.open(path / "m")
    architecture = architecture_for(source.spec)
    keys = {
        **model_keys(source.spec, architecture),
        **tokenizer_keys(source, TokenizerContent(source.texts), ROWS),
    }
    file = path / "model.gguf"
    write(file, source.spec, source.tensors, architecture, keys, "f32")
    return entry, file


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - REFUSED.keys() - NO_FILE.keys()))
def test_a_file_is_read_as_by_llama_cpp(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("llama_cpp", reason="llama.cpp comes with the extra gguf")
    from edgedec.export.gguf.tokenizer import left_out

    entry, file = written(tmp_path, kind)
    theirs, ours = Vocabulary(file), load_tokenizer(GgufHeader.read(file))
    texts, ids = entry["texts"], recorded(entry)["ids"]
    assert [theirs.ids(text) for text in texts] == [ours.encode(text) for text in texts]
    other = [text for text, one in zip(texts, ids, strict=True) if theirs.ids(text) != one]
    assert len(other) == OTHERWISE.get(kind, 0)
    for text in texts:
        # llama.cpp leaves the space of the beginning to its callers.
        assert theirs.text(ours.encode(text)).lstrip(" ") == ours.decode(ours.encode(text)).lstrip(
            " "
        )
    note = left_out(TokenizerContent(tmp_path / "m"))
    assert bool(note) == (kind in LOST)
    assert all(words in note for words in LOST.get(kind, ()))


@pytest.mark.parametrize("kind", NO_FILE)
def test_what_no_file_can_have_is_refused(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("gguf", reason="a GGUF file is written with the extra export")
    with pytest.raises(ExportError, match=NO_FILE[kind]):
        written(tmp_path, kind)


def test_long_tokens_are_lost_with_a_small_buffer_alone(tmp_path: Path) -> None:
    """Why llama-cpp-python's ``detokenize`` shows less: its buffer has 32 bytes for each token."""
    pytest.importorskip("llama_cpp", reason="llama.cpp comes with the extra gguf")
    entry = folder(tmp_path / "made", "gpt2")
    entry["tokenizer"]["added_tokens"].append({
        "id": 350, "content": "-" * 40, "single_word": False, "lstrip": False, "rstrip": False,
        "normalized": False, "special": False,
    })  # fmt: skip
    KINDS["long"] = tmp_path / "long.json"
    try:
        KINDS["long"].write_text(json.dumps(entry), "utf-8")
        _, file = written(tmp_path, "long")
    finally:
        del KINDS["long"]
    text = f"a {'-' * 40} b"
    ours, theirs = load_tokenizer(GgufHeader.read(file)), Vocabulary(file)
    ids = ours.encode(text)
    assert ours.decode(ids) == theirs.text(ids) == text
    assert theirs.text(ids, 32) != text
