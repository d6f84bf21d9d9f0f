"""A grown decoder computes what the small one computes, and the check would notice if not."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tiny_models import random_stored, random_tensors, save_checkpoint, tiny_config

from benchmarks.models import grow as grow_module
from benchmarks.models.grow import PRESETS, Shape, grow, main
from benchmarks.models.widening import layer_places
from edgedec.errors import InputError, UnsupportedArchitecture
from edgedec.models.registry import spec_for

# Hidden 64, FFN 128, 2 layers, 4 query heads on 2 key heads of size 16, 96 tokens.
SAME = Shape(hidden=64, ffn=128, layers=2, heads=4, kv_heads=2, vocab=96)
BLOCK = 32
TOKENS = np.random.default_rng(5).integers(0, 96, (2, 40))

SHAPES = {
    "unchanged": SAME,
    "hidden": dataclasses.replace(SAME, hidden=128),
    "hidden, ratio no square": dataclasses.replace(SAME, hidden=192),
    "ffn": dataclasses.replace(SAME, ffn=256),
    "layers": dataclasses.replace(SAME, layers=5),
    "wider groups": dataclasses.replace(SAME, heads=8),
    "more groups": dataclasses.replace(SAME, heads=8, kv_heads=4),
    "wider and more groups": dataclasses.replace(SAME, heads=24, kv_heads=6),
    "vocabulary": dataclasses.replace(SAME, vocab=160),
    "everything": Shape(hidden=256, ffn=512, layers=4, heads=16, kv_heads=4, vocab=128),
}


def make_source(folder: Path, *, half: bool = True, **changes: Any) -> Path:
    """A tiny checkpoint; with values that float16 holds, unless told otherwise."""
    config = tiny_config(**changes)
    tensors = random_tensors(spec_for(config))
    if half:
        tensors = {name: t.astype(np.float16).astype(np.float32) for name, t in tensors.items()}
    return save_checkpoint(folder, config, tensors)


def logits(folder: Path) -> np.ndarray:
    """Reference logits in float32, [2, 40, vocab]."""
    torch = pytest.importorskip("torch", reason="torch computes the reference logits")
    transformers = pytest.importorskip(
        "transformers", reason="transformers computes the reference logits"
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model.eval()(torch.from_numpy(TOKENS)).logits.numpy()


def assert_same_function(source: Path, grown: Path) -> None:
    expected = logits(source)
    found = logits(grown)[:, :, : expected.shape[2]]
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    assert (found.argmax(-1) == expected.argmax(-1)).all()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_same_function(tmp_path: Path, shape: Shape, dtype: str) -> None:
    source = make_source(tmp_path / "small", tie_word_embeddings=True)
    grow(source, tmp_path / "large", shape, dtype=dtype, block=BLOCK)
    assert_same_function(source, tmp_path / "large")


# What transformers adds to a Qwen3's config.json when it saves one.
SAVED_QWEN3 = {
    "model_type": "qwen3",
    "layer_types": ["full_attention"] * SAME.layers,
    "max_window_layers": 28,
    "sliding_window": None,
    "use_sliding_window": False,
}


@pytest.mark.torch
@pytest.mark.parametrize(
    "changes",
    [{"tie_word_embeddings": False}, {"model_type": "qwen3"}, SAVED_QWEN3],
    ids=["a head of its own", "query and key norms", "layer types"],
)
def test_other_decoders(tmp_path: Path, changes: dict[str, Any]) -> None:
    source = make_source(tmp_path / "small", **changes)
    grow(source, tmp_path / "large", SHAPES["everything"], block=BLOCK)
    assert_same_function(source, tmp_path / "large")


def test_layer_types_are_of_the_new_layers(tmp_path: Path) -> None:
    source = make_source(tmp_path / "small", **SAVED_QWEN3)
    grow(source, tmp_path / "large", SHAPES["everything"], block=BLOCK)
    config = json.loads((tmp_path / "large" / "config.json").read_text())
    assert config["layer_types"] == ["full_attention"] * SHAPES["everything"].layers
    assert spec_for(config).windows == (0,) * SHAPES["everything"].layers


def break_epsilon(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["rms_norm_eps"] *= 4
    (folder / "config.json").write_text(json.dumps(config))


def break_tensor(folder: Path, name: str, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors[name])
    save_file(tensors, folder / "model.safetensors")


def break_norm(folder: Path) -> None:
    break_tensor(folder, "model.norm.weight", lambda w: np.multiply(w, 1.01, out=w))


def break_residual(folder: Path) -> None:
    """A channel that should stay zero is written to."""
    name = "model.layers.0.mlp.down_proj.weight"
    break_tensor(folder, name, lambda w: w[-1].fill(0.1))


def break_dummy_head(folder: Path) -> None:
    """What a padded query head gathers reaches a real channel."""
    name = "model.layers.3.self_attn.o_proj.weight"
    break_tensor(folder, name, lambda w: w[0, -16:].fill(0.5))


@pytest.mark.torch
@pytest.mark.parametrize("damage", [break_epsilon, break_norm, break_residual, break_dummy_head])
def test_the_check_notices_a_broken_twin(tmp_path: Path, damage: Any) -> None:
    # A large epsilon, so that scaling it wrongly weighs something.
    source = make_source(tmp_path / "small", tie_word_embeddings=True, rms_norm_eps=1e-2)
    grow(source, tmp_path / "large", SHAPES["everything"], block=BLOCK)
    assert_same_function(source, tmp_path / "large")
    damage(tmp_path / "large")
    with pytest.raises(AssertionError):
        assert_same_function(source, tmp_path / "large")


def test_what_reads_a_new_channel_is_random_and_what_writes_to_it_is_zero(tmp_path: Path) -> None:
    source = make_source(tmp_path / "small", tie_word_embeddings=True)
    grow(source, tmp_path / "large", SHAPES["everything"], block=BLOCK)
    weights = load_file(tmp_path / "large" / "model.safetensors")
    layer = "model.layers.{}."
    for readers in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.gate_proj"):
        for number in range(4):
            assert (weights[layer.format(number) + readers + ".weight"] != 0).mean() > 0.99
    for writers in ("self_attn.o_proj", "mlp.down_proj"):
        # Layers 0 and 2 are new; 1 and 3 are the trained ones.
        assert not weights[layer.format(0) + writers + ".weight"].any()
        trained = weights[layer.format(1) + writers + ".weight"]
        assert trained[:64].any()
        assert not trained[64:].any()
    embedding = weights["model.embed_tokens.weight"]
    assert not embedding[:, 64:].any()
    assert embedding[96:, :64].all()
    assert "lm_head.weight" not in weights


def test_real_and_random_values_share_no_block(tmp_path: Path) -> None:
    """Each block of a real row is real from end to end, or holds nothing of the source."""
    source = make_source(tmp_path / "small", tie_word_embeddings=True)
    grow(source, tmp_path / "large", SHAPES["everything"], block=BLOCK)
    small = load_file(source / "model.safetensors")
    large = load_file(tmp_path / "large" / "model.safetensors")
    for old, new in zip(range(2), (1, 3), strict=True):
        for role in ("self_attn.o_proj", "mlp.down_proj", "self_attn.q_proj", "mlp.up_proj"):
            row = small[f"model.layers.{old}.{role}.weight"][0]
            blocks = large[f"model.layers.{new}.{role}.weight"][0].reshape(-1, BLOCK)
            for real in row.reshape(-1, BLOCK):
                assert (blocks == real).all(axis=1).sum() == 1


@pytest.mark.parametrize(
    ("shape", "block", "said"),
    [
        (dataclasses.replace(SAME, hidden=128), 128, "hidden: real and new values meet at [64]"),
        (dataclasses.replace(SAME, hidden=128), 128, "give --block 64 or less"),
        (dataclasses.replace(SAME, heads=6), 32, "heads: real and new values meet at [32, 48]"),
        (dataclasses.replace(SAME, hidden=32), 32, "hidden 32 is less than the source's 64"),
        (dataclasses.replace(SAME, layers=1), 32, "layers 1 is less"),
        (dataclasses.replace(SAME, heads=7), 32, "7 query heads cannot share 2 key heads"),
        (dataclasses.replace(SAME, heads=4, kv_heads=4), 32, "1 query heads a key head"),
    ],
)
def test_a_shape_that_cannot_be(tmp_path: Path, shape: Shape, block: int, said: str) -> None:
    source = make_source(tmp_path / "small")
    with pytest.raises(InputError) as caught:
        grow(source, tmp_path / "large", shape, block=block)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "kind",
    [
        {"model_type": "qwen2"},
        {"model_type": "mistral", "sliding_window": 9},
        {"model_type": "gemma2"},
        {"model_type": "phi3"},
        {"model_type": "olmo2"},
        {"model_type": "granite"},
        {"model_type": "smollm3", "num_hidden_layers": 4},
        {"hidden_act": "gelu"},
    ],
    ids=str,
)
def test_other_kinds_are_refused(tmp_path: Path, kind: dict[str, Any]) -> None:
    """Wherever the argument for growing does not hold, one line says so."""
    config = tiny_config(**kind)
    source = save_checkpoint(tmp_path / "small", config, random_stored(spec_for(config)))
    with pytest.raises(UnsupportedArchitecture, match=r"this .* is another"):
        grow(source, tmp_path / "large", SAME)


def test_equal_arguments_write_equal_bytes(tmp_path: Path, monkeypatch: Any) -> None:
    source = make_source(tmp_path / "small")
    files = []
    for name, seed, step in (("a", 0, 4 << 20), ("b", 0, 1000), ("c", 1, 4 << 20)):
        monkeypatch.setattr("benchmarks.models.widening._CHUNK_VALUES", step)
        grow(source, tmp_path / name, SHAPES["everything"], seed=seed, block=BLOCK)
        files.append((tmp_path / name / "model.safetensors").read_bytes())
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_layers_are_spread_evenly() -> None:
    for layers, places in ((4, [0, 1, 2, 3]), (8, [1, 3, 5, 7]), (6, [0, 2, 3, 5])):
        assert layer_places(4, layers) == places


def test_the_command_line(tmp_path: Path, capsys: Any) -> None:
    source = make_source(tmp_path / "small")
    (source / "tokenizer.json").write_text("{}")
    out = tmp_path / "large"
    words = [str(source), str(out), "--hidden", "128", "--vocab", "128", "--block", "32"]
    assert main(words) == 0
    config = json.loads((out / "config.json").read_text())
    assert (config["hidden_size"], config["vocab_size"]) == (128, 128)
    assert config["edgedec_vocab_used"] == 96
    assert spec_for(config).vocab_used == 96
    assert (out / "tokenizer.json").read_text() == "{}"
    assert main([str(source), str(out), "--layers", "1"]) == 2
    assert "error: layers 1 is less" in capsys.readouterr().err


def test_presets_grow_what_they_are_for() -> None:
    """Their blocks are aligned, and their sizes are what their names say."""
    target = tiny_config(
        hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, vocab_size=4096, tie_word_embeddings=True,
    )  # fmt: skip
    draft = {
        **target, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    }  # fmt: skip
    published = {
        **target, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    }  # fmt: skip
    sources = {
        "smollm2-1.1b": published, "smollm2-draft-100m": {**published, "num_hidden_layers": 6}
    }  # fmt: skip
    millions = {
        "smollm2-1.1b": 1107, "smollm2-draft-100m": 100,
        "target-0.5b": 495, "target-1b": 982, "draft-50m": 55, "draft-150m": 157,
        "target-35m": 35, "draft-half-head": 18, "target-0.55b-32k": 554, "draft-60m-32k": 61,
    }  # fmt: skip
    for name, shape in PRESETS.items():
        source = sources.get(name, target if name.startswith("target") else draft)
        small = spec_for(source)
        grow_module._check(small, shape, 64 if name in sources else 128)
        large = spec_for({**source, **grow_module._changes(small, shape, "float16")})
        assert large.parameters / 1e6 == pytest.approx(millions[name], rel=0.05)
