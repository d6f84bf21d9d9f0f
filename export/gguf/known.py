"""llama.cpp's architectures by the model types that they compute."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.gguf.architectures import (
    ALL_BIASES,
    QKV,
    Architecture,
    refuse,
    usual_scale,
)
from edgedec.export.gguf.naming import FUSED_QKV, QKV_STEM, Layout
from edgedec.export.gguf.sections import (
    CHOSEN_BY_SIGMOID,
    DELTA,
    MAMBA,
    NOPE,
    PATTERN,
    SHORT_CONVS,
    SIDE_BY_SIDE,
    SIZED,
    WIDTH_SCALE,
    caps,
    scales,
    windows,
)
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import DeltaNet, Mamba2, ShortConv
from edgedec.models.registry import architectures, llamacpp_names


def architecture_for(spec: DecoderSpec) -> Architecture:
    """Return the architecture that computes a decoder, or raise UnsupportedArchitecture."""
    names = llamacpp_names(spec.architecture)
    if not names:
        known = ", ".join(name for name in architectures() if llamacpp_names(name))
        raise UnsupportedArchitecture(
            f"model_type {spec.architecture!r} cannot be exported to GGUF, only {known}:"
            " export it to another format"
        )
    candidates = [KNOWN[name] for name in names]
    lacking = {candidate.name: candidate.lacking(spec) for candidate in candidates}
    for candidate in candidates:
        if not lacking[candidate.name]:
            return candidate
    name = next((one.name for one in candidates if one.mixes(spec)), names[0])
    raise refuse(spec, name, lacking[name])


def known_as(name: str) -> tuple[str, Architecture] | None:
    """Return an architecture by llama.cpp's name, and the model type of what it computes."""
    found = KNOWN.get(name)
    return None if found is None else (found.model_type or name, found)


def _gemma_scale(largest: int) -> Callable[[DecoderSpec], float]:
    """Return the scale; llama.cpp recognises the size with another one by its number of layers."""

    def scale(spec: DecoderSpec) -> float:
        if spec.layers == largest:
            return 1 / math.sqrt(spec.hidden // spec.heads)
        return usual_scale(spec)

    return scale


def _no_sinks(spec: DecoderSpec) -> dict[str, FloatArray]:
    """Return attention sinks without an effect."""
    sinks = np.full(spec.heads, -1e30, np.float32)
    return {f"blk.{layer}.attn_sinks.weight": sinks for layer in range(spec.layers)}


def _zero_biases(spec: DecoderSpec) -> dict[str, FloatArray]:
    """Return zero biases for attention that has none."""
    sizes: dict[str, int] = {}
    if not spec.qkv_bias:
        sizes["attn_qkv"] = spec.q_size + 2 * spec.kv_size
    if not spec.out_bias:
        sizes["attn_output"] = spec.hidden
    return {
        f"blk.{layer}.{name}.bias": np.zeros(size, np.float32)
        for name, size in sizes.items()
        for layer in range(spec.layers)
    }


def _gelu_note(spec: DecoderSpec) -> str:
    if spec.activation == "gelu":
        return "llama.cpp computes GELU by its usual approximation, the source exactly"
    return ""


_FREQUENCIES = ("rope_freqs.weight",)
_GRANITE_SCALES = scales("embed", "residual", "attention", "logits")
_LLAMA = Architecture(
    "llama",
    biases=ALL_BIASES,
    interleaved=True,
    rope_factors=_FREQUENCIES,
)
_GRANITE = Architecture(
    "granite",
    biases=ALL_BIASES,
    interleaved=True,
    rope_factors=_FREQUENCIES,
    scales=frozenset({"embed", "residual", "attention", "logits"}),
    nope=True,
    sections=(_GRANITE_SCALES, NOPE),
)
_GRANITE_HYBRID = dataclasses.replace(
    _GRANITE,
    name="granitehybrid",
    model_type="granitemoehybrid",
    biases=ALL_BIASES | {"conv", "step"},
    experts=True,
    shared=True,
    mixer=Mamba2,
    layout=Layout(
        fused={"blk.{layer}.ssm_in": ("mix_in", "mix_step")},
        names={"conv": "blk.{layer}.ssm_conv1d", "mix_out": "blk.{layer}.ssm_out"},
    ),
    sections=(_GRANITE_SCALES, MAMBA, NOPE),
)
# Granite's kind with windows and with layers that do not rotate; new in llama.cpp.
_BY_LAYER = Architecture(
    "granite_swa",
    model_type="mistral",
    biases=ALL_BIASES,
    interleaved=True,
    rope_factors=_FREQUENCIES,
    windows=True,
    skips=None,
    scales=_GRANITE.scales,
    sections=(PATTERN, _GRANITE_SCALES),
    constants=_no_sinks,
    note=lambda spec: "as llama.cpp's architecture granite_swa, which older versions do not have",
)
_GEMMA3 = Architecture(
    "gemma3",
    model_type="gemma3_text",
    placement="pre_post",
    activations=("gelu_tanh",),
    qk_norms=("head",),
    biases=QKV,
    windows=True,
    scales=frozenset({"embed", "logit_cap"}),
    attention=_gemma_scale(62),
    sections=(WIDTH_SCALE, windows(6, 10_000.0), caps(logit_cap=0.0)),
)
_OLMO2 = Architecture(
    "olmo2",
    placement="post",
    qk_norms=("all",),
    biases=QKV,
    narrow=True,
    windows=True,
    layout=Layout(own_head=True),
    sections=(windows(4, scaled=False),),
)
_QWEN35 = Architecture(
    "qwen35",
    model_type="qwen3_5_text",
    qk_norms=("head",),
    biases=frozenset({"step"}),
    gate=True,
    mixer=DeltaNet,
    layout=Layout(
        fused={"blk.{layer}.attn_q": ("q", "attention_gate")},
        names={
            "mlp_norm": "blk.{layer}.post_attention_norm",
            "mix_in": QKV_STEM,
            "conv": "blk.{layer}.ssm_conv1d",
            "mix_out": "blk.{layer}.ssm_out",
        },
    ),
    sections=(DELTA,),
)
_QWEN35_MOE = dataclasses.replace(
    _QWEN35, name="qwen35moe", model_type="qwen3_5_moe_text", experts=True, shared=True
)
# By llama.cpp's names; the files of models/ say with ``GGUF`` which of them compute a family.
_ALL = (
    _LLAMA,
    _GRANITE,
    _GRANITE_HYBRID,
    _BY_LAYER,
    _GEMMA3,
    _OLMO2,
    _QWEN35,
    _QWEN35_MOE,
    Architecture("qwen2", biases=QKV, narrow=True),
    Architecture("qwen3", biases=QKV, qk_norms=("head",)),
    Architecture("qwen3moe", model_type="qwen3_moe", biases=QKV, qk_norms=("head",), experts=True),
    Architecture(
        "olmoe",
        biases=QKV,
        qk_norms=("all",),
        narrow=True,
        even=True,
        experts=False,
        layout=Layout(own_head=True),
    ),
    Architecture(
        "gemma2",
        placement="pre_post",
        activations=("gelu_tanh",),
        biases=QKV,
        windows=True,
        scales=frozenset({"embed", "attention_cap", "logit_cap"}),
        attention=_gemma_scale(46),
        tied=True,
        sections=(
            WIDTH_SCALE,
            windows(2, usual=4096),
            caps(attention_cap=50.0, logit_cap=30.0),
        ),
    ),
    Architecture(
        "gemma4",
        model_type="gemma4_text",
        placement="pre_post",
        activations=("gelu_tanh",),
        qk_norms=("head",),
        rope_factors=_FREQUENCIES,
        windows=True,
        scales=frozenset({"embed", "logit_cap"}),
        attention=lambda spec: 1.0,
        sections=(WIDTH_SCALE, SIZED, caps(logit_cap=30.0)),
    ),
    Architecture(
        "phi3",
        narrow=True,
        rope_factors=("rope_factors_long.weight", "rope_factors_short.weight"),
        layout=Layout({"blk.{layer}.ffn_up": ("gate", "up")}),
    ),
    Architecture("smollm3", biases=QKV, interleaved=True, skips=4),
    Architecture(
        "stablelm",
        norm="layer",
        residuals=("sequential", "shared"),
        qk_norms=("", "heads"),
        biases=QKV,
        narrow=True,
        layout=Layout(own_head=True),
    ),
    Architecture(
        "exaone4",
        other=64,
        placement="post",
        qk_norms=("head",),
        biases=QKV,
        rope_factors=_FREQUENCIES,
    ),
    Architecture(
        "ernie4_5",
        biases=QKV | {"o"},
        interleaved=True,
        rope_factors=_FREQUENCIES,
    ),
    Architecture("hunyuan-dense", model_type="hunyuan_v1_dense", biases=QKV, qk_norms=("rotated",)),
    Architecture(
        "minicpm",
        biases=ALL_BIASES,
        interleaved=True,
        rope_factors=_FREQUENCIES,
        scales=frozenset({"embed", "residual", "logits"}),
        sections=(scales("embed", "residual", "logits"),),
    ),
    Architecture(
        "lfm2",
        qk_norms=("head",),
        narrow=True,
        mixer=ShortConv,
        layout=Layout(names={"final_norm": "token_embd_norm"}),
        sections=(SHORT_CONVS,),
    ),
    Architecture(
        "lfm2moe",
        model_type="lfm2_moe",
        qk_norms=("head",),
        biases=frozenset({"probs"}),
        narrow=True,
        mixer=ShortConv,
        experts=True,
        sigmoid=True,
        layout=Layout(names={"final_norm": "token_embd_norm"}),
        sections=(SHORT_CONVS, CHOSEN_BY_SIGMOID),
    ),
    Architecture(
        "gpt2",
        norm="layer",
        activations=("gelu_tanh", "gelu"),
        gated=False,
        biases=ALL_BIASES,
        narrow=True,
        learned=True,
        layout=Layout(FUSED_QKV),
        note=_gelu_note,
    ),
    Architecture(
        "gptneox",
        model_type="gpt_neox",
        norm="layer",
        residuals=("sequential", "parallel"),
        activations=("gelu", "gelu_tanh"),
        gated=False,
        biases=ALL_BIASES,
        narrow=True,
        layout=Layout(FUSED_QKV, own_head=True),
        sections=(SIDE_BY_SIDE,),
        constants=_zero_biases,
        note=_gelu_note,
    ),
)
KNOWN: Mapping[str, Architecture] = {one.name: one for one in _ALL}
