"""Tiny random hybrids in GGUF: Qwen3.5, dense and as a mixture, and LFM2.

Of four layers the last one attends, the others have a state. Names of keys and tensors are those
that llama.cpp reads.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
from tiny_gguf import _tokenizer

Array = npt.NDArray[np.float32]

LAYERS, VOCAB, HIDDEN, FFN = 4, 96, 64, 96
HEADS, KV_HEADS, HEAD_DIM, ROTATED = 4, 2, 32, 8
# Of the gated delta rule: heads of keys and values, channels of each, and the convolution's taps.
KEY_HEADS, VALUE_HEADS, STATE, TAPS = 2, 4, 32, 4
EXPERTS, CHOSEN = 4, 2
SHORT_TAPS = 3
EPS, ROPE_BASE = 1e-6, 10000.0
ARCHITECTURES = ("qwen35", "qwen35moe", "lfm2")

Shapes = dict[str, tuple[int, ...]]


def heads_of(arch: str) -> tuple[int, int]:
    """Heads of queries, and of keys and values; LFM2's queries are as wide as its stream."""
    return (HIDDEN // HEAD_DIM, 1) if arch == "lfm2" else (HEADS, KV_HEADS)


def attends(layer: int) -> bool:
    """Whether a layer has keys and values."""
    return (layer + 1) % LAYERS == 0


def hybrid_weights(arch: str, seed: int = 0, noise: float = 0.0) -> dict[str, Array]:
    """Return the tensors of a model by name; ``noise``: how far they stray from the seed's."""
    found = _values(_shapes(arch), seed)
    if noise:
        strays = _values(_shapes(arch), seed + 1)
        for name, values in found.items():
            if values.ndim > 1:
                found[name] = values + np.float32(noise) * strays[name]
    return found


def write_hybrid_gguf(
    file: Path,
    arch: str = "qwen35",
    weights: str = "F32",
    *,
    seed: int = 0,
    noise: float = 0.0,
    context: int = 1024,
) -> Path:
    """Write a model; ``weights`` is the type of its matrices, ``noise`` as ``hybrid_weights``."""
    writer = gguf.GGUFWriter(file, arch)
    writer.add_name(f"tiny-{arch}")
    writer.add_block_count(LAYERS)
    writer.add_context_length(context)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    heads, kv_heads = heads_of(arch)
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(ROPE_BASE)
    if arch == "lfm2":
        writer.add_shortconv_l_cache(SHORT_TAPS)
        writer.add_head_count_kv([kv_heads * attends(layer) for layer in range(LAYERS)])
        writer.add_vocab_size(VOCAB)
    else:
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(HEAD_DIM)
        writer.add_value_length(HEAD_DIM)
        writer.add_rope_dimension_count(ROTATED)
        writer.add_rope_dimension_sections([2, 1, 1, 0])
        writer.add_full_attention_interval(LAYERS)
        writer.add_ssm_conv_kernel(TAPS)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_group_count(KEY_HEADS)
        writer.add_ssm_time_step_rank(VALUE_HEADS)
        writer.add_ssm_inner_size(VALUE_HEADS * STATE)
    if arch == "qwen35moe":
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(CHOSEN)
        writer.add_expert_feed_forward_length(FFN)
        writer.add_expert_shared_feed_forward_length(FFN)
    _tokenizer(writer, VOCAB, 0, "t")
    kind = gguf.GGMLQuantizationType[weights]
    for name, values in hybrid_weights(arch, seed, noise).items():
        if values.ndim == 1 or "conv" in name or kind is gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _shapes(arch: str) -> Shapes:
    found: Shapes = {"token_embd.weight": (VOCAB, HIDDEN)}
    if arch == "lfm2":
        found["token_embd_norm.weight"] = (HIDDEN,)
    else:
        found |= {"output_norm.weight": (HIDDEN,), "output.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        own = {"attn_norm.weight": (HIDDEN,), **_mixer(arch, layer), **_ffn(arch)}
        own["ffn_norm.weight" if arch == "lfm2" else "post_attention_norm.weight"] = (HIDDEN,)
        found |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
    return found


def _mixer(arch: str, layer: int) -> Shapes:
    gated, (heads, kv_heads) = arch != "lfm2", heads_of(arch)
    if attends(layer):
        return {
            "attn_q.weight": ((1 + gated) * heads * HEAD_DIM, HIDDEN),
            "attn_k.weight": (kv_heads * HEAD_DIM, HIDDEN),
            "attn_v.weight": (kv_heads * HEAD_DIM, HIDDEN),
            "attn_output.weight": (HIDDEN, heads * HEAD_DIM),
            "attn_q_norm.weight": (HEAD_DIM,),
            "attn_k_norm.weight": (HEAD_DIM,),
        }
    if not gated:
        return {
            "shortconv.in_proj.weight": (3 * HIDDEN, HIDDEN),
            "shortconv.conv.weight": (HIDDEN, SHORT_TAPS),
            "shortconv.out_proj.weight": (HIDDEN, HIDDEN),
        }
    keys, values = KEY_HEADS * STATE, VALUE_HEADS * STATE
    return {
        "attn_qkv.weight": (2 * keys + values, HIDDEN),
        "attn_gate.weight": (values, HIDDEN),
        "ssm_conv1d.weight": (2 * keys + values, TAPS),
        "ssm_dt.bias": (VALUE_HEADS,),
        "ssm_a": (VALUE_HEADS,),
        "ssm_beta.weight": (VALUE_HEADS, HIDDEN),
        "ssm_alpha.weight": (VALUE_HEADS, HIDDEN),
        "ssm_norm.weight": (STATE,),
        "ssm_out.weight": (HIDDEN, values),
    }


def _ffn(arch: str) -> Shapes:
    if arch != "qwen35moe":
        wide = {f"ffn_{name}.weight": (FFN, HIDDEN) for name in ("gate", "up")}
        return {**wide, "ffn_down.weight": (HIDDEN, FFN)}
    return {
        "ffn_gate_inp.weight": (EXPERTS, HIDDEN),
        "ffn_gate_exps.weight": (EXPERTS, FFN, HIDDEN),
        "ffn_up_exps.weight": (EXPERTS, FFN, HIDDEN),
        "ffn_down_exps.weight": (EXPERTS, HIDDEN, FFN),
        "ffn_gate_inp_shexp.weight": (HIDDEN,),
        "ffn_gate_shexp.weight": (FFN, HIDDEN),
        "ffn_up_shexp.weight": (FFN, HIDDEN),
        "ffn_down_shexp.weight": (HIDDEN, FFN),
    }


def _values(shapes: Shapes, seed: int) -> dict[str, Array]:
    """Weights with a spread that makes every part of the decoder matter."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in name:
            values = np.float32(1) + values / 4
        elif name.endswith("ssm_a"):
            values = -np.exp(values / 2 - 1)  # it remembers for some tokens
        elif name == "token_embd.weight":
            # Where it is the head too, a large one repeats what it reads.
            values /= 2 if "output.weight" in shapes else 20
        elif len(shape) > 1:
            values *= 1.5 / np.sqrt(shape[-1], dtype=np.float32)
        found[name] = values.astype(np.float32)
    return found
