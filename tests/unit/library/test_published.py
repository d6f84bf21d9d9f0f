"""Published drafts: entries that hold together, and targets recognised by name or by size."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_config

from edgedec.errors import EdgedecError, InputError
from edgedec.library import Library, published
from edgedec.library.drafts import LARGEST_SHARE
from edgedec.library.published import DRAFTS, MODEL, MTP, PARALLEL, TARGETS, Draft, Target
from edgedec.library.recognise import recognise
from edgedec.library.reference import parse
from edgedec.models.heads import head_inside
from edgedec.models.registry import architectures, spec_for

QWEN3_4B = {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560}


def in_layers(target: Target) -> float:
    """About how many million parameters a target has: 15 squares of its width in a layer."""
    return 15e-6 * target.layers * target.hidden**2


def mistakes(drafts: tuple[Draft, ...], known: Sequence[str] | None = None) -> list[str]:
    """What is wrong with a list of drafts, if these architectures can be exported."""
    known = architectures() if known is None else known
    targets = {one.name: one for one in TARGETS}
    found = [f"{one.name} twice" for one in drafts if [d.name for d in drafts].count(one.name) > 1]
    for one in drafts:
        if parse(one.name) is None or one.kind not in published.NEEDS or not one.source:
            found.append(f"{one.name}: no name on a hub, kind or source")
        for name in one.targets:
            target = targets.get(name)
            if target is None:
                found.append(f"{one.name}: {name} is not listed")
            elif one.kind == MODEL and one.millions > LARGEST_SHARE * in_layers(target):
                found.append(f"{one.name}: too large for {name}")
            elif target.architecture not in known and not one.unread:
                found.append(f"{one.name}: {name} cannot be exported")
    return found


def test_the_list_holds_together() -> None:
    assert mistakes(DRAFTS) == []
    assert {name for one in DRAFTS for name in one.targets} == {one.name for one in TARGETS}
    assert {one.kind for one in DRAFTS} == {*published.NEEDS}


@pytest.mark.parametrize(
    "wrong",
    [
        replace(DRAFTS[0], name="no-organisation"),
        replace(DRAFTS[0], targets=("Qwen/Qwen3-9B",)),
        replace(DRAFTS[0], kind=MODEL, millions=600),
        replace(DRAFTS[0], source=""),
        DRAFTS[1],
    ],
)
def test_wrong_entries_are_noticed(wrong: Draft) -> None:
    """The control."""
    assert mistakes((wrong, *DRAFTS[1:]))


def test_a_target_that_cannot_be_exported_is_noticed() -> None:
    """The control."""
    assert mistakes(DRAFTS, [one for one in architectures() if one != "olmo2"])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        (
            "XiaomiMiMo/MiMo-7B-RL",
            {
                "model_type": "mimo", "intermediate_size": 11008, "num_attention_heads": 32,
                "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151680,
                "num_hidden_layers": 36, "attention_bias": True, "num_nextn_predict_layers": 1,
            },
        ),
        (
            "Qwen/Qwen3.5-9B",
            {
                "model_type": "qwen3_5_text", "intermediate_size": 12288,
                "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
                "vocab_size": 248320, "num_hidden_layers": 32, "mtp_num_hidden_layers": 1,
            },
        ),
    ],
)  # fmt: skip
def test_the_size_of_an_mtp_layer_follows_from_its_shapes(name: str, own: dict[str, Any]) -> None:
    """Of the sizes in their configurations; 464 MiB of Qwen3.5 9B's were published alone."""
    sizes = {"hidden_size": 4096, "max_position_embeddings": 32768, **own}
    target = spec_for(sizes)
    head = head_inside(sizes, target)
    assert head is not None
    (draft,) = (one for one in DRAFTS if one.name == name)
    assert draft.kind == MTP
    assert draft.millions == round(head.parameters / 1e6)


# Of small models: layers, width, of the feed-forward part, heads, of keys and values, numbers of
# one, tokens, and whether embedding and head are one matrix.
SHAPES: dict[str, tuple[str, int, int, int, int, int, int, int, bool]] = {
    "Qwen/Qwen3-0.6B": ("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, True),
    "amd/PARD-Qwen3-0.6B": ("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, True),
    "Qwen/Qwen2.5-0.5B-Instruct": ("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": ("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True),
    "amd/PARD-Qwen2.5-0.5B": ("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True),
    "meta-llama/Llama-3.2-1B-Instruct": ("llama", 16, 2048, 8192, 32, 8, 64, 128256, True),
    "amd/PARD-Llama-3.2-1B": ("llama", 16, 2048, 8192, 32, 8, 64, 128256, True),
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("llama", 30, 576, 1536, 9, 3, 64, 49152, True),
    "google/gemma-3-270m-it": ("gemma3_text", 18, 640, 2048, 4, 1, 256, 262144, True),
    "allenai/OLMo-2-0425-1B-Instruct": ("olmo2", 16, 2048, 8192, 16, 16, 128, 100352, False),
}


def test_sizes_of_small_models_follow_from_their_shapes() -> None:
    keys = (
        "model_type", "num_hidden_layers", "hidden_size", "intermediate_size",
        "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
        "tie_word_embeddings",
    )  # fmt: skip
    stated = {one.name: one.millions for one in DRAFTS if one.kind in (MODEL, PARALLEL)}
    found = dict.fromkeys(stated, 0) | {
        name: round(spec_for(tiny_config(**dict(zip(keys, shape, strict=True)))).parameters / 1e6)
        for name, shape in SHAPES.items()
    }
    assert found == stated


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("qwen3:8b", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-8B@main", "Qwen/Qwen3-8B"),
        ("unsloth/Qwen3-4B-Instruct-2507-GGUF:Q4_K_M", "Qwen/Qwen3-4B-Instruct-2507"),
        ("Qwen3-4B-Q8_0.gguf", "Qwen/Qwen3-4B"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("gemma3:4b", "google/gemma-3-4b-it"),
    ],
)
def test_a_name_is_recognised_however_it_is_written(tmp_path: Path, word: str, name: str) -> None:
    assert [one.name for one in recognise(word, Library(tmp_path))] == [name]


@pytest.mark.parametrize(
    ("folder", "config", "names"),
    [
        ("mine", QWEN3_4B, ["Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Instruct-2507"]),
        ("Qwen3-4B", QWEN3_4B, ["Qwen/Qwen3-4B"]),
        ("Qwen3-8B", QWEN3_4B, ["Qwen/Qwen3-4B", "Qwen/Qwen3-4B-Instruct-2507"]),
        ("g", {"model_type": "gemma3", "text_config": {"num_hidden_layers": 34,
         "hidden_size": 2560}}, ["google/gemma-3-4b-it"]),
    ],
)  # fmt: skip
def test_a_checkpoint_is_recognised_by_its_sizes(
    tmp_path: Path, folder: str, config: dict[str, object], names: list[str]
) -> None:
    """A folder's name only chooses between targets of the same sizes."""
    path = tmp_path / folder
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    assert [one.name for one in recognise(str(path), Library(tmp_path / "l"))] == names


def test_one_layer_more_is_another_model(tmp_path: Path) -> None:
    """The control."""
    (tmp_path / "config.json").write_text(json.dumps({**QWEN3_4B, "num_hidden_layers": 37}))
    with pytest.raises(InputError, match="no published draft is listed"):
        recognise(str(tmp_path), Library(tmp_path / "l"))


@pytest.mark.parametrize("word", ["", "demo", "Qwen/Qwen3-9B", "./nowhere", "a b"])
def test_an_unknown_target_says_what_to_do(tmp_path: Path, word: str) -> None:
    with pytest.raises(EdgedecError) as caught:
        recognise(word, Library(tmp_path))
    said = str(caught.value)
    assert "\n" not in said
    assert re.search("give|--draft", said)
    if word == "Qwen/Qwen3-9B":
        assert "did you mean Qwen/Qwen3" in said
