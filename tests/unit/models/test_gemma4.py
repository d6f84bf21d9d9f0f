"""Gemma 4's config.json: published sizes, what files leave out, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gemma4 import CONFIG, FULL, SLIDING
from tiny_models import random_stored, save_checkpoint

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.export.checkpoint import Checkpoint
from edgedec.models.registry import spec_for

# As Google's folder states them.
E2B: dict[str, Any] = {
    "model_type": "gemma4",
    "text_config": {
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_hidden_layers": 35,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "num_kv_shared_layers": 20,
        "use_double_wide_mlp": True,
        "layer_types": ([SLIDING] * 4 + [FULL]) * 7,
        "final_logit_softcapping": 30.0,
    },
}


def test_e2b() -> None:
    """Its card says 2.3 billion effective parameters: those besides the layers' table."""
    spec = spec_for(E2B)
    table = spec.vocab_size * spec.layers * spec.per_layer_inputs
    assert 2.25e9 < spec.parameters - table < 2.35e9
    assert table == 262_144 * 35 * 256
    # As docs/hybrids.md says.
    assert (round(table / 1e9, 2), round(spec.parameters / 1e9, 2)) == (2.35, 4.63)
    assert spec.caching == tuple(range(15))
    assert [spec.lender(layer) for layer in range(15, 35)] == [13, 13, 13, 13, 14] * 4
    assert {own.ffn for own in spec.sizes[:15]} == {6144}
    assert {own.ffn for own in spec.sizes[15:]} == {12_288}
    assert spec.kv_channels == 12 * 256 + 3 * 512
    assert spec.windows == (512, 512, 512, 512, 0) * 7


def test_rotation_of_full_layers_turns_the_first_quarter() -> None:
    spec = spec_for(E2B)
    cos, sin = spec.rope_tables(4, 9)  # type: ignore[misc]
    assert cos.shape == (9, 256)
    assert (cos[:, 64:] == 1).all()
    assert (sin[:, 64:] == 0).all()
    np.testing.assert_allclose(sin[8, :64], np.sin(8 * 1e6 ** -(np.arange(64) / 256)), atol=1e-6)
    assert spec.rope_tables(0, 9)[0].shape == (9, 128)  # type: ignore[index]


def test_the_last_layer_sees_everything_whatever_the_file_says() -> None:
    spec = spec_for({**CONFIG, "layer_types": [SLIDING, FULL, SLIDING, FULL] + [SLIDING] * 3})
    assert spec.windows[-1] == 0
    assert spec.sizes[-1].head_dim == 32


def test_sizes_of_single_layers() -> None:
    """The newer form of the same facts."""
    own = {str(layer): {"head_dim": 32} for layer in (3, 6)}
    assert spec_for({**CONFIG, "per_layer_config": own, "global_head_dim": 99}) == spec_for(CONFIG)
    fewer = {**own, "3": {"head_dim": 32, "num_key_value_heads": 1}}
    with pytest.raises(CheckpointError, match="layer 6 cannot read the keys of layer 3"):
        spec_for({**CONFIG, "per_layer_config": fewer})


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"enable_moe_block": True}, UnsupportedArchitecture, "without mixtures of experts"),
        ({"use_bidirectional_attention": "all"}, UnsupportedArchitecture, "does not support"),
        ({"vocab_size_per_layer_input": 90}, UnsupportedArchitecture, "is not vocab_size"),
        ({"num_kv_shared_layers": 7}, UnsupportedArchitecture, "of another model"),
        ({"num_kv_shared_layers": 4}, CheckpointError, "no layer of its kind"),
        ({"num_key_value_heads": 3}, CheckpointError, "a divisor of num_attention_heads"),
        ({"global_head_dim": 33}, CheckpointError, "an even number of channels"),
        ({"per_layer_config": []}, CheckpointError, "not an object"),
        ({"per_layer_config": {"1": {"theta": 3}}}, UnsupportedArchitecture, "layer 1 is"),
        ({"rope_parameters": {FULL: {"rope_type": "odd"}}}, UnsupportedArchitecture, "'odd'"),
        ({"rope_parameters": 3}, CheckpointError, "expected an object"),
        ({"layer_types": [SLIDING] * 3}, CheckpointError, "3 layer_types for 7 layers"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    spec_for(CONFIG)  # the control
    with pytest.raises(error, match=words):
        spec_for({**CONFIG, **changes})


def test_vision_attends_both_ways_in_images_alone() -> None:
    assert spec_for({**CONFIG, "use_bidirectional_attention": "vision"}) == spec_for(CONFIG)


def test_what_a_folder_holds_besides_the_text_decoder_is_no_news(tmp_path: Path) -> None:
    """Images, sound, and keys of layers that read those of others."""
    config = {"model_type": "gemma4", "text_config": CONFIG, "tie_word_embeddings": True}
    stored = random_stored(spec_for(config))
    named = {name.replace("model.", "model.language_model."): one for name, one in stored.items()}
    beside = ("model.embed_vision.embedding_projection.weight", "model.audio_tower.a.weight",
              "model.language_model.layers.5.self_attn.k_proj.weight")  # fmt: skip
    one = np.ones(3, np.float32)
    whole = save_checkpoint(tmp_path / "whole", config, named | dict.fromkeys(beside, one))
    assert not Checkpoint.open(whole).notes
    # The control: a layer with keys of its own has one tensor too many.
    odd = {"model.language_model.layers.1.self_attn.k_proj.scale": one}
    assert (
        "k_proj.scale" in Checkpoint.open(save_checkpoint(tmp_path, config, named | odd)).notes[0]
    )
