"""The conformance vectors: edgedec still computes them, and what is broken would be noticed."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np
import pytest

from edgedec.decoding import noise as generator
from edgedec.decoding.noise import noise_of
from edgedec.errors import InputError
from edgedec.text.chat_pieces import ChatPieces
from tools.vectors import chat, files, manifests, noise

# -- noise --------------------------------------------------------------


def test_streams() -> None:
    found = files.read("noise.json")["streams"]
    assert len(found) > 400
    assert {case["purpose"] for case in found} == {0, 1, 2, 3}
    for case in found:
        made = noise.stream(*(case[name] for name in ("seed", "position", "purpose", "index")))
        assert made == case


def test_noise() -> None:
    for case in files.read("noise.json")["noise"]:
        assert noise.noise(int(case["key"]), case["vocab_size"]) == case


def test_no_noise_hangs_on_a_last_bit() -> None:
    cases = files.read("noise.json")["noise"]
    for case in cases:
        assert noise.is_clear(int(case["key"]), case["vocab_size"])


def test_a_value_at_a_tie_would_be_noticed(monkeypatch) -> None:
    monkeypatch.setattr(noise, "_UNSURE", 1e-9)  # of 4,096 values a few are as near as that
    assert not noise.is_clear(7, 4096)


# Each a mistake that a port may make.
BROKEN_NOISE = {
    "another constant": ("_GOLDEN", np.uint64(0x9E3779B97F4A7C13)),
    "another last shift": ("_LAST_SHIFT", np.uint64(30)),
    "53 bits": ("_LOWEST", np.uint64(11)),
    "another share of large noise": ("_LARGE_STEP", -(2.0**-52) * 2.0**-7),
    "gaps from another counter": ("_GAPS", 1 << 39),
}


def differs(case: dict[str, Any]) -> bool:
    try:
        with np.errstate(all="ignore"):
            return noise.noise(int(case["key"]), case["vocab_size"]) != case
    except IndexError:  # steps of gaps that are below zero
        return True


@pytest.mark.parametrize("name", BROKEN_NOISE)
def test_broken_noise_is_noticed(name: str, monkeypatch) -> None:
    attribute, value = BROKEN_NOISE[name]
    monkeypatch.setattr(generator, attribute, value)
    generator._all_counters.cache_clear()
    generator._gap_counters.cache_clear()
    try:
        assert any(map(differs, files.read("noise.json")["noise"][::4]))
    finally:
        generator._all_counters.cache_clear()
        generator._gap_counters.cache_clear()


def test_one_changed_number_is_noticed() -> None:
    case = copy.deepcopy(files.read("noise.json")["noise"][30])
    case["first"][7] ^= 1
    assert noise.noise(int(case["key"]), case["vocab_size"]) != case
    stream = {**files.read("noise.json")["streams"][0], "position": 2}
    made = noise.stream(*(stream[name] for name in ("seed", "position", "purpose", "index")))
    assert made != stream


# -- chat ---------------------------------------------------------------


def test_chat() -> None:
    found = files.read("chat.json")["pieces"]
    assert {"chatml", "qwen2", "qwen3", "llama3", "gemma2", "gemma3", "phi3"} <= {
        sample["name"] for sample in found
    }
    for sample in found:
        pieces = ChatPieces.parse(json.dumps(sample["pieces"]), sample["name"])
        for case in sample["cases"]:
            if case.get("refused"):
                with pytest.raises(InputError):
                    pieces.render(case["messages"])
            else:
                assert pieces.render(case["messages"]) == case["text"]


def test_the_pieces_are_those_of_the_templates() -> None:
    assert json.loads(files.text_of(chat.make())) == files.read("chat.json")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("qwen2", {"default_system": None}), ("llama3", {"strip": []}), ("gemma3", {"strip": []}),
        ("gemma3", {"after_system": None}), ("qwen3", {"think_end": None}), ("llama3", {"bos": ""}),
        ("qwen3", {"think_end": {"mark": "</think>", "drop": ""}}), ("phi3", {"generation": ""}),
    ],
)  # fmt: skip
def test_pieces_that_are_ignored_are_noticed(name: str, change: dict[str, Any]) -> None:
    (sample,) = (sample for sample in files.read("chat.json")["pieces"] if sample["name"] == name)
    pieces = ChatPieces.parse(json.dumps({**sample["pieces"], **change}), name)
    rendered = [case for case in sample["cases"] if "text" in case]
    assert any(pieces.render(case["messages"]) != case["text"] for case in rendered)


# -- manifests ----------------------------------------------------------


def test_manifests() -> None:
    found = files.read("manifests.json")
    assert sum(case["refused"] is None for case in found) >= 8
    assert len({case["name"] for case in found}) == len(found) > 80
    for case in found:
        manifests.check(case)


def test_a_manifest_with_another_outcome_is_noticed() -> None:
    found = files.read("manifests.json")
    sound = next(case for case in found if case["refused"] is None)
    hostile = next(case for case in found if case["refused"] is not None)
    for case in (
        {**sound, "refused": "expected a size"},
        {**hostile, "refused": None},
        {**hostile, "refused": "other words"},
        {**sound, "manifest": sound["manifest"].replace("schema_version", "schema-version")},
    ):
        with pytest.raises(AssertionError):
            manifests.check(case)


def test_the_words_of_refusals_name_no_path() -> None:
    for case in files.read("manifests.json"):
        assert "/" not in (case["refused"] or "")


# -- files --------------------------------------------------------------


def test_a_file_has_a_line_for_each_case() -> None:
    text = files.text_of({"a": [1, {"b": "é"}], "c": {"d": 2}})
    assert text == '{"a": [\n1,\n{"b": "\\u00e9"}\n],\n"c": {"d": 2}}\n'
    assert files.text_of([]) == "[]\n"


def test_a_changed_file_is_shown(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    files.write("x.json", files.text_of([1, 2]))
    assert files.difference("x.json", files.text_of([1, 2])) == ""
    assert "+3" in files.difference("x.json", files.text_of([1, 3]))
    assert "now" in files.difference("missing.json", "x\n")


def test_the_vectors_are_small() -> None:
    sizes = [file.stat().st_size for file in files.FOLDER.rglob("*.json")]
    assert len(sizes) >= 13
    assert sum(sizes) < 1_500_000


def test_the_page_names_the_files(repository) -> None:
    page = (repository / "docs" / "bundle-format.md").read_text("utf-8")
    for file in files.FOLDER.glob("*.json"):
        assert f"`{file.name}`" in page


def test_noise_of_the_first_tokens_is_that_of_a_larger_vocabulary() -> None:
    """As the page says."""
    rng = random.Random(1)
    for _ in range(5):
        key = rng.getrandbits(64)
        small, large = (noise_of([key], size)[0].all() for size in (700, 9000))
        assert np.array_equal(small, large[:700])
