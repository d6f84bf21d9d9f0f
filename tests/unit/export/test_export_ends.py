"""The ends of a text are all that a folder's files name, in every format.

``transformers`` says what its ``generate`` stops at (4.57.6 and 5.24: the ``eos_token_id`` of
generation_config.json, of config.json without one, of its ``text_config``); ``map`` and the rest
are what published folders name beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from kinds import in_full
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import edgedec
from edgedec.errors import CheckpointError
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.checkpoint import Checkpoint
from edgedec.gguf.vocabulary import listed_ends
from edgedec.models.registry import spec_for

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>", "<|call|>"]
END, START, TURN, FILL, CALL = range(5)
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
A_LETTER = len(SPECIAL)
GENERATION, MAP = "generation_config.json", "special_tokens_map.json"
CONFIG = "tokenizer_config.json"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Begins the assistant's turn whatever it is asked for, as GLM's and older ones do.
OPEN = "{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>"
OPENS = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}<|im_start|>"


def folder(path: Path, files: dict[str, Any], vocab: int = 288, **config: Any) -> Path:
    """A tiny model with the special tokens of Qwen, and these files; config.json has no end."""
    about = tiny_models.tiny_config(vocab_size=vocab)
    del about["eos_token_id"]
    stored = tiny_models.random_stored(spec_for(about))
    tiny_models.save_checkpoint(path, {**about, **config}, stored)
    names = [*SPECIAL, *LETTERS, "it"]
    made = Tokenizer(
        models.BPE(vocab={name: id for id, name in enumerate(names)}, merges=[("i", "t")])
    )
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    made.save(str(path / "tokenizer.json"))
    for name, value in files.items():
        (path / name).write_text(json.dumps(value), "utf-8")
    return path


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[int]]] = {
    "config.json alone": ({}, {"eos_token_id": END}, {END}),
    "a list in config.json": ({}, {"eos_token_id": [END, CALL]}, {END, CALL}),
    "generation_config.json alone": ({GENERATION: {"eos_token_id": [TURN, END]}}, {}, {TURN, END}),
    "a null in it": ({GENERATION: {"eos_token_id": None}}, {"eos_token_id": END}, {END}),
    "the text model's": ({}, {"text_config": {"eos_token_id": TURN}}, {TURN}),
    # Qwen2.5's and SmolLM2's folders: the end of a document here, of a turn there.
    "two files, two ends": (
        {GENERATION: {"eos_token_id": TURN}}, {"eos_token_id": END}, {TURN, END}),
    "the tokenizer's": (
        {CONFIG: {"eos_token": "<|im_end|>"}}, {"eos_token_id": END}, {TURN, END}),
    "the map's": ({MAP: {"eos_token": "<|im_end|>"}}, {"eos_token_id": END}, {TURN, END}),
    "the map's, as an object": (
        {MAP: {"eos_token": {"content": "<|im_end|>"}}}, {"eos_token_id": END}, {TURN, END}),
    "the map's, which the configuration hides": (
        {CONFIG: {"eos_token": "<|endoftext|>", "added_tokens_decoder": {}},
         MAP: {"eos_token": "<|im_end|>"}},
        {"eos_token_id": CALL}, {END, TURN, CALL}),
    "the configuration's, which the map hides": (
        {CONFIG: {"eos_token": "<|endoftext|>"}, MAP: {"eos_token": "<|im_end|>"}},
        {"eos_token_id": CALL}, {END, TURN, CALL}),
    # It gets the first row that is left, as in transformers.
    "one that is no token": (
        {MAP: {"eos_token": "<new>"}}, {"eos_token_id": END}, {END, A_LETTER + len(LETTERS) + 1}),
    "of four files": (
        {GENERATION: {"eos_token_id": [CALL]}, MAP: {"eos_token": "<|endoftext|>"},
         CONFIG: {"chat_template": CHATML}}, {"eos_token_id": START}, {CALL, START, END, TURN}),
    "the template's": ({CONFIG: {"chat_template": CHATML}}, {"eos_token_id": END}, {TURN, END}),
    "a template that closes nothing": (
        {CONFIG: {"chat_template": OPEN}}, {"eos_token_id": END}, {END, START}),
    "a template that opens the next turn": (
        {CONFIG: {"chat_template": OPENS}}, {"eos_token_id": END}, {END}),
    "a template that is none": ({CONFIG: {"chat_template": "{% if"}}, {"eos_token_id": END}, {END}),
    # LlamaConfig's default is 2, whatever the vocabulary has there.
    "a word in a file that generate does not read": (
        {GENERATION: {"eos_token_id": TURN}}, {"eos_token_id": A_LETTER}, {TURN}),
    "no token in a file that generate does not read": (
        {GENERATION: {"eos_token_id": TURN}}, {"eos_token_id": 5000}, {TURN}),
    "a word that generate stops at": ({}, {"eos_token_id": A_LETTER}, {A_LETTER}),
    "none": ({}, {}, set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ends_are_all_that_the_files_name(tmp_path: Path, name: str) -> None:
    files, config, ends = CASES[name]
    found = Checkpoint.open(folder(tmp_path / "m", files, **config)).eos_ids
    assert len(found) == len(set(found))
    assert set(found) == ends


def test_the_control_reads_what_generate_reads() -> None:
    """That alone is less in most of the cases."""

    def read(files: dict[str, Any], config: dict[str, Any]) -> set[int]:
        named = files.get(GENERATION, {}).get("eos_token_id"), config.get("eos_token_id")
        value = next((one for one in named if one is not None), [])
        return {*value} if isinstance(value, list) else {value}

    less = {name for name, (files, config, ends) in CASES.items() if read(files, config) < ends}
    assert len(less) == 11


def test_an_end_that_is_no_token(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"eos_token_id \[5000\] is not a token"):
        _ = Checkpoint.open(folder(tmp_path / "m", {}, eos_token_id=5000)).eos_ids


@pytest.mark.parametrize(
    "name", in_full(["of four files", "two files, two ends", "the template's"])
)
def test_formats_have_the_same_ends_and_ids(tmp_path: Path, name: str) -> None:
    pytest.importorskip("llama_cpp", reason="a GGUF file is opened with the extra gguf")
    files, config, ends = CASES[name]
    source = folder(tmp_path / "m", files, **config)
    texts = ["it's 1234", "<|im_start|>user\nHi<|im_end|><|fim_pad|>"]
    found, ids = {}, {}
    for form in ("onnx", "gguf", "coreml"):
        weights = {"onnx": "fp32", "gguf": "f32", "coreml": "fp16"}[form]
        out, device = tmp_path / form, "reference" if form == "coreml" else None
        export_bundle(
            ExportOptions(
                target=source, out=out, formats=(form,), weights=weights, calibration="none"
            )
        )
        with edgedec.Pipeline.open(out, drafter="none", device=device) as pipeline:
            found[form] = set(pipeline.target.info.eos_ids)
            ids[form] = [pipeline.tokenizer.encode(text) for text in texts]
    assert found == dict.fromkeys(found, ends)
    assert ids["onnx"] == ids["gguf"] == ids["coreml"]


def test_a_file_that_lists_its_ends_has_no_others() -> None:
    assert listed_ends("0,2", 5) == [0, 2]
    assert listed_ends("2,2", 5) == [2]
    for wrong in (None, "", "0,9", "-1", "0,", "1e3", "0 2", ",".join(["1"] * 99), "\u0661"):
        assert listed_ends(wrong, 5) == []
