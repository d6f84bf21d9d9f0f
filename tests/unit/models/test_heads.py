"""Heads' configurations: the dialects that name the target's streams, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tiny_qwen3_5
from tiny_models import tiny_config

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models.heads import head_for, head_inside, is_head, kinds, neighbours
from edgedec.models.heads.head import FUSE, HIDDEN_NORM, TARGET_NORM, HeadSpec
from edgedec.models.registry import spec_for

TARGET = spec_for(tiny_config(num_hidden_layers=12))
IDS = "eagle_aux_hidden_state_layer_ids"
LAYER = {
    "hidden_size": TARGET.hidden,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "vocab_size": TARGET.vocab_size,
}
AUTHORS = {
    **LAYER,
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "draft_vocab_size": 40,
    "target_hidden_size": TARGET.hidden,
}
SPECULATORS = {
    "speculators_model_type": "eagle3",
    "architectures": ["Eagle3Speculator"],
    "draft_vocab_size": 40,
    "transformer_layer_config": {**LAYER, "model_type": "qwen3"},
    "norm_before_residual": True,
}


@pytest.mark.parametrize(
    ("config", "taps"),
    [
        (AUTHORS, (2, 6, 9)),
        ({**AUTHORS, "eagle_config": {IDS: [1, 5, 8]}}, (2, 6, 9)),
        ({**AUTHORS, "eagle_config": {IDS: [11]}}, (12,)),
        (SPECULATORS, (2, 6, 9)),
        ({**SPECULATORS, IDS: [1, 5, 8]}, (1, 5, 8)),
        ({**SPECULATORS, IDS: None}, (2, 6, 9)),
    ],
)
def test_the_streams_that_a_head_reads(config: dict[str, Any], taps: tuple[int, ...]) -> None:
    spec = head_for(config, TARGET)
    assert spec.taps == taps
    assert spec.tensors()[FUSE] == (TARGET.hidden, len(taps) * TARGET.hidden)
    assert spec.layer.vocab_size == 40


def test_what_the_layer_is() -> None:
    authors, speculators = head_for(AUTHORS, TARGET), head_for(SPECULATORS, TARGET)
    assert (authors.residual, authors.carry, authors.layer.qk_norm) == ("raw", "raw", "")
    assert (speculators.residual, speculators.layer.qk_norm) == ("normed", "head")
    assert head_for({**AUTHORS, "norm_output": True}, TARGET).carry == "normed"
    wide = authors.tensors()["model.layers.0.self_attn.q_proj.weight"]
    assert wide == (64, 2 * TARGET.hidden)
    assert {"eagle3", "mimo_mtp"} <= set(kinds())
    assert authors.fuse_norm == ""
    later = head_for({**SPECULATORS, "fc_norm": True}, TARGET)
    assert later.tensors()["fuse_norm.2.weight"] == (TARGET.hidden,)
    assert head_for({**SPECULATORS, "norm_before_fc": True}, TARGET).fuse_norm == "all"


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"target_hidden_size": 64 + TARGET.hidden}, CheckpointError, "made for this target"),
        ({"hidden_size": 2 * TARGET.hidden}, CheckpointError, "made for this target"),
        ({"draft_vocab_size": TARGET.vocab_size + 1}, CheckpointError, "made for this target"),
        ({"eagle_config": {IDS: [1, 5, 12]}}, CheckpointError, "12 layers"),
        ({"eagle_config": {IDS: [1, 1]}}, CheckpointError, "ascending ones"),
        ({"eagle_config": {IDS: [5, 1]}}, CheckpointError, "ascending ones"),
        ({"eagle_config": {IDS: [-2, 1]}}, CheckpointError, "ascending ones"),
        ({"eagle_config": {IDS: "1"}}, CheckpointError, "a list of layers"),
        ({"eagle_config": 3}, CheckpointError, "expected an object"),
        ({"eagle_config": {"use_last_layernorm": False}}, UnsupportedArchitecture, "last_layer"),
        ({"fc_norm": True, "norm_before_fc": True}, CheckpointError, "exclude each other"),
        ({"model_type": "gpt2"}, UnsupportedArchitecture, "expected one of llama, qwen3"),
        ({"architectures": ["LlamaForCausalLM"]}, UnsupportedArchitecture, "no head"),
    ],
)
def test_what_is_refused(change: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        head_for({**AUTHORS, **change}, TARGET)


MIMO = tiny_config(model_type="mimo", num_nextn_predict_layers=1, num_hidden_layers=3)


def test_a_head_inside_a_checkpoint_is_like_a_layer_of_its_target() -> None:
    target = spec_for(MIMO)
    spec = head_inside(MIMO, target)
    assert spec is not None
    assert (spec.taps, spec.join, spec.state_first, spec.carry) == ((3,), "product", True, "raw")
    own, layer = spec.tensors(), "model.layers.0.self_attn.q_proj"
    assert own[f"{layer}.weight"] == (64, target.hidden)
    assert own[f"{layer}.bias"] == (64,)
    assert FUSE not in own
    assert "lm_head.weight" not in own
    assert not is_head(MIMO)
    assert head_inside({**MIMO, "num_nextn_predict_layers": 0}, target) is None
    assert head_inside({**MIMO, "model_type": "qwen2"}, target) is None
    plain = spec_for({**MIMO, "attention_bias": False})
    assert not plain.qkv_bias


QWEN = tiny_qwen3_5.CONFIG | {"mtp_num_hidden_layers": 1}
WITH_PICTURES = {"model_type": "qwen3_5", "text_config": QWEN}


@pytest.mark.parametrize("config", [QWEN, WITH_PICTURES], ids=["text", "multimodal"])
def test_qwens_head_is_like_a_layer_of_its_target_that_attends(config: dict[str, Any]) -> None:
    target = spec_for(config)
    spec = head_inside(config, target)
    assert spec is not None
    assert (spec.taps, spec.join, spec.state_first, spec.carry) == (
        (4,),
        "product",
        False,
        "normed",
    )
    assert spec.target_norm
    assert (spec.layer.mixers, spec.layer.ropes) == ((), (target.ropes[2],))
    # Query and gate lie in one stored tensor, and a norm is stored less one.
    at = "model.layers.0.self_attn."
    for name, start in ((f"{at}q_proj.weight", 0), (f"{at}gate.weight", 16)):
        (source,) = spec.stored[name]
        assert (source.name, source.start) == ("mtp.layers.0.self_attn.q_proj.weight", start)
        assert (source.rows, source.group, source.step) == (128, 16, 32)
    assert [source.plus for source in spec.stored[HIDDEN_NORM]] == [1.0]
    assert "model.language_model.norm.weight" in {one.name for one in spec.stored[TARGET_NORM]}


def test_a_head_with_an_embedding_of_its_own_is_refused() -> None:
    own = QWEN | {"mtp_use_dedicated_embeddings": True}
    with pytest.raises(UnsupportedArchitecture, match="target's embedding only; --no-mtp"):
        head_inside(own, spec_for(own))
    assert head_inside(QWEN | {"mtp_num_hidden_layers": 0}, spec_for(QWEN)) is None


@pytest.mark.parametrize(
    "spec",
    [
        head_for(AUTHORS, TARGET),
        head_inside(MIMO, spec_for(MIMO)),
        head_inside(QWEN, spec_for(QWEN)),
    ],
)
def test_every_neighbour_differs_in_one_thing(spec: HeadSpec) -> None:
    """What a row hands on makes no difference before the second one."""
    found = list(neighbours(spec, TARGET.layers))
    assert len(found) >= 3
    for one in found:
        changed = [
            field.name
            for field in dataclasses.fields(spec)
            if getattr(one.spec, field.name) != getattr(spec, field.name)
        ]
        assert len(changed) == 1
        assert one.depth == (2 if changed == ["carry"] else 1)
