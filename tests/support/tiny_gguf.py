"""Tiny random decoders in GGUF, written with the gguf package alone.

A tiny Llama, one with a sliding window (Gemma 2's shape) and one with a recurrent state
(Mamba's), in any type that llama.cpp computes with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

VOCAB = 96
HIDDEN = 64
FFN = 128
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
CONTEXT = 512
WINDOW = 8
EOS, EOT = 1, 2


def write_tiny_gguf(
    file: Path,
    arch: str = "llama",
    weights: str = "F32",
    *,
    layers: int = 2,
    vocab: int = VOCAB,
    hidden: int = HIDDEN,
    ffn: int = FFN,
    unused: int = 0,
    unused_name: str = "t",
    seed: int = 0,
    noise: float = 0.0,
    context: int = CONTEXT,
    trained_context: int | None = None,
) -> Path:
    """Write a model.

    Args:
        file: to write.
        arch: ``llama``, ``gemma2`` or ``mamba``.
        weights: the type of matrices, a name of ``gguf.GGMLQuantizationType``.
        layers, vocab, hidden, ffn: dimensions; multiples of 32 but for layers.
        unused: how many of the last tokens are padding and no token.
        unused_name: what their names begin with.
        seed: of the weights.
        noise: how far they stray from those of the seed; a draft of the model without.
        context: tokens it says it was trained for.
        trained_context: tokens of a first training, before the context was extended.

    """
    writer = gguf.GGUFWriter(file, arch)
    writer.add_name(f"tiny-{arch}")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_layer_norm_rms_eps(1e-5)
    _tokenizer(writer, vocab, unused, unused_name)
    if arch == "mamba":
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * hidden)
        writer.add_ssm_state_size(16)
        writer.add_ssm_time_step_rank(32)
        shapes = _mamba(layers, vocab, hidden)
    else:
        writer.add_feed_forward_length(ffn)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_key_length(HEAD_DIM)
        writer.add_value_length(HEAD_DIM)
        writer.add_rope_freq_base(10000.0)
        shapes = _transformer(layers, vocab, hidden, ffn)
        if arch == "gemma2":
            writer.add_sliding_window(WINDOW)
            writer.add_attn_logit_softcapping(50.0)
            writer.add_final_logit_softcapping(30.0)
            del shapes["output.weight"]
            for layer in range(layers):
                shapes[f"blk.{layer}.post_attention_norm.weight"] = (hidden,)
                shapes[f"blk.{layer}.post_ffw_norm.weight"] = (hidden,)
    if trained_context is not None:
        writer.add_rope_scaling_orig_ctx_len(trained_context)
    kind = gguf.GGMLQuantizationType[weights]
    strays = _values(shapes, seed + 1) if noise else {}
    for name, values in _values(shapes, seed).items():
        if name in strays and values.ndim > 1:
            values = values + np.float32(noise) * strays[name]
        _add(writer, name, values, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _tokenizer(writer: gguf.GGUFWriter, vocab: int, unused: int, unused_name: str) -> None:
    types = [gguf.TokenType.CONTROL] * 4
    types += [gguf.TokenType.NORMAL] * (vocab - 4 - unused)
    types += [gguf.TokenType.UNUSED] * unused
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    names = ["<s>", "</s>", "<|eot_id|>", "<pad>", *map(chr, range(ord("!"), ord("|"))), "ab"]
    names += [f"t{token}" for token in range(len(names), vocab)]
    for token in range(vocab - unused, vocab):
        names[token] = f"{unused_name}{token}"
    writer.add_token_list(names[:vocab])
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])  # llama.cpp wants one
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(EOT)


def _transformer(layers: int, vocab: int, hidden: int, ffn: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, hidden),
        "output_norm.weight": (hidden,),
        "output.weight": (vocab, hidden),
    }
    for layer in range(layers):
        for name, shape in (
            ("attn_norm", (hidden,)),
            ("attn_q", (HEADS * HEAD_DIM, hidden)),
            ("attn_k", (KV_HEADS * HEAD_DIM, hidden)),
            ("attn_v", (KV_HEADS * HEAD_DIM, hidden)),
            ("attn_output", (hidden, HEADS * HEAD_DIM)),
            ("ffn_norm", (hidden,)),
            ("ffn_gate", (ffn, hidden)),
            ("ffn_up", (ffn, hidden)),
            ("ffn_down", (hidden, ffn)),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return shapes


def _mamba(layers: int, vocab: int, hidden: int) -> dict[str, tuple[int, ...]]:
    inner, state, rank = 2 * hidden, 16, 32
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, hidden),
        "output_norm.weight": (hidden,),
    }
    for layer in range(layers):
        for name, shape in (
            ("attn_norm.weight", (hidden,)),
            ("ssm_in.weight", (2 * inner, hidden)),
            ("ssm_conv1d.weight", (inner, 4)),
            ("ssm_conv1d.bias", (inner,)),
            ("ssm_x.weight", (rank + 2 * state, inner)),
            ("ssm_dt.weight", (inner, rank)),
            ("ssm_dt.bias", (inner,)),
            ("ssm_a", (inner, state)),
            ("ssm_d", (inner,)),
            ("ssm_out.weight", (hidden, inner)),
        ):
            shapes[f"blk.{layer}.{name}"] = shape
    return shapes


def _values(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Weights with a spread that makes every part of the decoder matter."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in name:
            values = np.float32(1) + values / 4
        elif name.endswith("ssm_a"):
            values = -np.exp(values / 2)
        elif name == "token_embd.weight":
            # Where it is the head too, a large one repeats what it reads.
            values /= 2 if "output.weight" in shapes else 20
        elif len(shape) == 2:
            values *= 1.5 / np.sqrt(shape[1], dtype=np.float32)
        found[name] = values.astype(np.float32)
    return found


def _add(writer: gguf.GGUFWriter, name: str, values: Array, kind: Any) -> None:
    small = values.ndim == 1 or "conv1d" in name or "ssm_a" in name
    if small or kind is gguf.GGMLQuantizationType.F32:
        writer.add_tensor(name, values)
        return
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
