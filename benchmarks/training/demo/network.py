# SPDX-License-Identifier: Apache-2.0
"""A Llama decoder in plain PyTorch; parameter names are those of a Hugging Face checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Dimensions:
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 64
    vocab: int = 4096
    rope_theta: float = 100_000.0
    norm_epsilon: float = 1e-5
    max_positions: int = 8192

    def hf_config(self) -> dict[str, object]:
        """config.json of the equivalent transformers LlamaForCausalLM."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_epsilon,
            "rope_theta": self.rope_theta,
            "max_position_embeddings": self.max_positions,
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "bos_token_id": None,
            "eos_token_id": 0,
            "pad_token_id": 0,
            "torch_dtype": "float16",
            "use_cache": True,
        }


TARGET = Dimensions(hidden=512, ffn=1024, layers=4, heads=8, kv_heads=4)
DRAFT = Dimensions(hidden=256, ffn=512, layers=2, heads=4, kv_heads=2)
OTHER_DRAFT = replace(DRAFT, vocab=2048)  # with a tokenizer of its own


class Cache:
    """Keys and values of every layer, preallocated; used for sampling only."""

    def __init__(self, dims: Dimensions, like: Tensor, capacity: int, dtype: torch.dtype) -> None:
        """For as many rows as ``like`` has, on its device."""
        shape = (dims.layers, 2, len(like), dims.kv_heads, capacity, dims.head_dim)
        self.store = torch.zeros(shape, dtype=dtype, device=like.device)
        self.length = 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        end = self.length + key.shape[2]
        self.store[layer, 0, :, :, self.length : end] = key
        self.store[layer, 1, :, :, self.length : end] = value
        return self.store[layer, 0, :, :, :end], self.store[layer, 1, :, :, :end]


class Norm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding on [rows, heads, length, head_dim], halves rather than pairs."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _attend_row(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One query a row against the whole cache.

    The fused kernel would need the keys repeated for every query head at every step.
    """
    grouped = query.unflatten(1, (key.shape[1], -1)).squeeze(3)  # [rows, kv_heads, groups, dim]
    scores = grouped @ key.transpose(-1, -2) * key.shape[-1] ** -0.5
    return (scores.softmax(-1) @ value).flatten(1, 2).unsqueeze(2)


class Attention(nn.Module):
    def __init__(self, dims: Dimensions, layer: int, columns: int | None = None) -> None:
        super().__init__()
        self.dims, self.layer = dims, layer
        columns = columns or dims.hidden
        wide, narrow = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
        self.q_proj = nn.Linear(columns, wide, bias=False)
        self.k_proj = nn.Linear(columns, narrow, bias=False)
        self.v_proj = nn.Linear(columns, narrow, bias=False)
        self.o_proj = nn.Linear(wide, dims.hidden, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each [rows, its heads, length, head_dim]."""

        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (-1, self.dims.head_dim)).transpose(1, 2)

        query = rotate(split(self.q_proj(x)), cos, sin)
        return query, rotate(split(self.k_proj(x)), cos, sin), split(self.v_proj(x))

    def join(self, mixed: Tensor) -> Tensor:
        """What the heads mixed, [rows, heads, length, head_dim] -> [rows, length, hidden]."""
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        query, key, value = self.project(x, cos, sin)
        if cache is not None:
            key, value = cache.extend(self.layer, key, value)
        # With a cache: one row, or a prompt onto an empty cache.
        mixed = attend(query, key, value) if x.shape[1] > 1 else _attend_row(query, key, value)
        return self.join(mixed)


class Mlp(nn.Module):
    def __init__(self, dims: Dimensions) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dims.hidden, dims.ffn, bias=False)
        self.up_proj = nn.Linear(dims.hidden, dims.ffn, bias=False)
        self.down_proj = nn.Linear(dims.ffn, dims.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, dims: Dimensions, layer: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(dims.hidden, dims.norm_epsilon)
        self.self_attn = Attention(dims, layer)
        self.post_attention_layernorm = Norm(dims.hidden, dims.norm_epsilon)
        self.mlp = Mlp(dims)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, dims: Dimensions) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(dims.vocab, dims.hidden)
        self.layers = nn.ModuleList(Layer(dims, layer) for layer in range(dims.layers))
        self.norm = Norm(dims.hidden, dims.norm_epsilon)


class Decoder(nn.Module):
    """Token ids [rows, length] -> logits [rows, length, vocab]."""

    cos: Tensor
    sin: Tensor

    def __init__(self, dims: Dimensions, seed: int = 0) -> None:
        super().__init__()
        self.dims = dims
        self.model = Body(dims)
        set_up(self, dims, dims.head_dim, seed)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        return self.with_states(tokens, (), cache)[0]

    def with_states(
        self, tokens: Tensor, taps: tuple[int, ...], cache: Cache | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the logits, and the residual streams before the layers of `taps`."""
        start = 0 if cache is None else cache.length
        end = start + tokens.shape[1]
        cos, sin = self.cos[start:end], self.sin[start:end]
        x, states = self.model.embed_tokens(tokens), []
        for number, layer in enumerate(self.model.layers):
            if number in taps:
                states.append(x)
            x = layer(x, cos, sin, cache)
        if cache is not None:
            cache.length = end
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight), states


def set_up(module: nn.Module, dims: Any, rotated: int, seed: int) -> None:
    """Add the tables that rotate so many channels, and draw the weights of matrices."""
    half = torch.arange(0, rotated, 2, dtype=torch.float64) / rotated
    places = torch.arange(dims.max_positions, dtype=torch.float64)
    angles = torch.outer(places, dims.rope_theta**-half)
    # Not persistent: the checkpoint holds exactly the Hugging Face names.
    module.register_buffer("cos", angles.cos().float(), persistent=False)
    module.register_buffer("sin", angles.sin().float(), persistent=False)
    generator = torch.Generator().manual_seed(seed)
    residual = (2 * dims.layers) ** -0.5
    ends = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
    for name, weight in module.named_parameters():
        if weight.ndim == 2:
            scale = residual if name.endswith(ends) else 1.0
            nn.init.normal_(weight, std=0.02 * scale, generator=generator)
