"""llama.cpp's architectures by the model types that they compute."""

from __future__ import annotations

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
from edgedec.export.gguf.naming import FUSED_QKV, Layout
from edgedec.export.gguf.sections import (
    PATTERN,
    SHORT_CONVS,
    SIDE_BY_SIDE,
    WIDTH_SCALE,
    caps,
    scales,
    windows,
)
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec


def architecture_for(spec: DecoderSpec) -> Architecture:
    """Return the architecture that computes a decoder, or raise UnsupportedArchitecture."""
    candidates = _KNOWN.get(spec.architecture)
    if candidates is None:
        known = ", ".join(sorted(_KNOWN))
        raise UnsupportedArchitecture(
            f"model_type {spec.architecture!r} cannot be exported to GGUF, only {known}:"
            " export it to another format"
        )
    lacking = {candidate.name: candidate.lacking(spec) for candidate in candidates}
    for candidate in candidates:
        if not lacking[candidate.name]:
            return candidate
    name = candidates[0].name
    raise refuse(spec, name, lacking[name])


def known_as(name: str) -> tuple[str, Architecture] | None:
    """Return an architecture by llama.cpp's name, and the first model type that it computes."""
    for model_type, candidates in _KNOWN.items():
        for candidate in candidates:
            if candidate.name == name:
                return model_type, candidate
    return None


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
    sections=(_GRANITE_SCALES,),
)
# Granite's kind with windows and with layers that do not rotate; new in llama.cpp.
_BY_LAYER = Architecture(
    "granite_swa",
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
    placement="pre_post",
    activations=("gelu_tanh",),
    qk_norms=("head",),
    biases=QKV,
    windows=True,
    scales=frozenset({"embed", "logit_cap"}),
    attention=_gemma_scale(62),
    sections=(WIDTH_SCALE, windows(6, 10_000.0), caps("logit_cap")),
)
_OLMO2 = Architecture(
    "olmo2",
    placement="post",
    qk_norms=("all",),
    biases=QKV,
    narrow=True,
    windows=True,
    layout=Layout(own_head=True),
    sections=(windows(4),),
)
_QWEN2 = (Architecture("qwen2", biases=QKV, narrow=True), _LLAMA, _BY_LAYER)

_KNOWN: Mapping[str, tuple[Architecture, ...]] = {
    "llama": (_LLAMA,),
    "mistral": (_LLAMA, _BY_LAYER),
    # Within the original context, behind which its queries grow.
    "ministral3": (_LLAMA,),
    "mistral3": (_LLAMA, _BY_LAYER),
    "qwen2": _QWEN2,
    "mimo": _QWEN2,
    "qwen3": (Architecture("qwen3", biases=QKV, qk_norms=("head",)),),
    "qwen3_moe": (Architecture("qwen3moe", biases=QKV, qk_norms=("head",), experts=True),),
    "olmoe": (
        Architecture(
            "olmoe",
            biases=QKV,
            qk_norms=("all",),
            narrow=True,
            even=True,
            experts=False,
            layout=Layout(own_head=True),
        ),
    ),
    "gemma2": (
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
                windows(2, needed=True),
                caps("attention_cap", "logit_cap", needed=True),
            ),
        ),
    ),
    "gemma3_text": (_GEMMA3,),
    "gemma3": (_GEMMA3,),
    "phi3": (
        Architecture(
            "phi3",
            narrow=True,
            rope_factors=("rope_factors_long.weight", "rope_factors_short.weight"),
            layout=Layout({"blk.{layer}.ffn_up": ("gate", "up")}),
        ),
    ),
    # If every layer rotates, it is a Llama.
    "smollm3": (Architecture("smollm3", biases=QKV, interleaved=True, skips=4), _LLAMA, _BY_LAYER),
    "stablelm": (
        Architecture(
            "stablelm",
            norm="layer",
            residuals=("sequential", "shared"),
            qk_norms=("", "heads"),
            biases=QKV,
            narrow=True,
            layout=Layout(own_head=True),
        ),
    ),
    "olmo2": (_OLMO2,),
    # Sliding layers keep the rotation's own base; llama.cpp knows OLMo 3 as OLMo 2 with windows.
    "olmo3": (_OLMO2,),
    # Its windows follow from its number of layers, so only the size without any is the same here.
    "exaone4": (
        Architecture(
            "exaone4",
            placement="post",
            qk_norms=("head",),
            biases=QKV,
            rope_factors=_FREQUENCIES,
        ),
    ),
    "ernie4_5": (
        Architecture(
            "ernie4_5",
            biases=QKV | {"o"},
            interleaved=True,
            rope_factors=_FREQUENCIES,
        ),
    ),
    "hunyuan_v1_dense": (Architecture("hunyuan-dense", biases=QKV, qk_norms=("rotated",)),),
    "lfm2": (
        Architecture(
            "lfm2",
            qk_norms=("head",),
            narrow=True,
            convs=True,
            layout=Layout(names={"final_norm": "token_embd_norm"}),
            sections=(SHORT_CONVS,),
        ),
    ),
    "granite": (_GRANITE,),
    "granitemoehybrid": (_GRANITE,),
    "minicpm": (
        Architecture(
            "minicpm",
            biases=ALL_BIASES,
            interleaved=True,
            rope_factors=_FREQUENCIES,
            scales=frozenset({"embed", "residual", "logits"}),
            sections=(scales("embed", "residual", "logits"),),
        ),
    ),
    "gpt2": (
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
    ),
    "gpt_neox": (
        Architecture(
            "gptneox",
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
    ),
}
