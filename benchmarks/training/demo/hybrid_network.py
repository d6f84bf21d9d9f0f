# SPDX-License-Identifier: Apache-2.0
"""A small hybrid of Qwen3.5's kind, with its MTP layer, in plain PyTorch.

Three layers of the gated delta rule (2412.06464) to one of gated attention. Parameter names are
those of published checkpoints; norms but the one inside a delta layer hold their weight less one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training.demo.network import Mlp, attend, rotate, set_up


@dataclass(frozen=True)
class HybridDimensions:
    hidden: int = 256
    ffn: int = 512
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    key_heads: int = 2
    value_heads: int = 4
    state_dim: int = 64  # of a key and of a value
    kernel: int = 4
    interval: int = 4  # every fourth layer attends
    vocab: int = 4096
    rope_theta: float = 100_000.0
    rotated: float = 0.25
    norm_epsilon: float = 1e-6
    max_positions: int = 32768

    @property
    def key_size(self) -> int:
        return self.key_heads * self.state_dim

    @property
    def value_size(self) -> int:
        return self.value_heads * self.state_dim

    def attends(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    def hf_config(self) -> dict[str, object]:
        """config.json of the equivalent transformers Qwen3_5ForCausalLM."""
        kinds = ["full" if self.attends(layer) else "linear" for layer in range(self.layers)]
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "rms_norm_eps": self.norm_epsilon,
            "max_position_embeddings": self.max_positions,
            "attention_bias": False,
            "attn_output_gate": True,
            "tie_word_embeddings": True,
            "layer_types": [f"{kind}_attention" for kind in kinds],
            "full_attention_interval": self.interval,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.state_dim,
            "linear_value_head_dim": self.state_dim,
            "linear_conv_kernel_dim": self.kernel,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.rope_theta,
                "partial_rotary_factor": self.rotated,
            },
            "mtp_num_hidden_layers": 1,
            "mtp_use_dedicated_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": 0,
            "pad_token_id": 0,
            "dtype": "float16",
        }


class PlusOneNorm(nn.Module):
    """RMS norm by 1 + weight."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight + 1, self.epsilon)


class GatedNorm(nn.Module):
    """RMS norm of each head's values, then times silu(gate)."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.epsilon) * F.silu(gate)


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, chunk: int = 32
) -> Tensor:
    """Outputs of the gated delta rule from an empty state.

    Row by row: S *= exp(g), S += k (beta (v - k.S)), o = q.S. With D the running sum of g in a
    chunk, what its rows write is W = (1 + A)^-1 (beta v - beta exp(D) k.S0), where A below its
    diagonal is beta_i (k_i.k_j) exp(D_i - D_j): one triangular system instead of a loop.

    Args:
        query: [rows, heads, length, dim], as are key and value; length is a multiple of chunk.
        decay: [rows, heads, length], logarithms; beta has the same shape.

    """
    query, key, value = (x.unflatten(2, (-1, chunk)) for x in (query, key, value))
    decay, beta = (x.unflatten(2, (-1, chunk)) for x in (decay, beta))
    run = decay.cumsum(-1)
    below = torch.ones(chunk, chunk, dtype=torch.bool, device=key.device).tril()
    between = (run.unsqueeze(-1) - run.unsqueeze(-2)).masked_fill(~below, -torch.inf).exp()
    scaled = key * beta.unsqueeze(-1)
    system = (scaled @ key.transpose(-1, -2)) * between
    both = torch.cat((value * beta.unsqueeze(-1), scaled * run.exp().unsqueeze(-1)), -1)
    solved = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)
    fresh, faded = solved.split((value.shape[-1], key.shape[-1]), -1)
    within = (query @ key.transpose(-1, -2)) * between
    reading = query * run.exp().unsqueeze(-1)
    writing = (key * (run[..., -1:] - run).exp().unsqueeze(-1)).transpose(-1, -2)
    kept = run[..., -1].exp()[..., None, None]
    state = torch.zeros_like(key[:, :, 0].transpose(-1, -2) @ value[:, :, 0])
    outputs = []
    for number in range(query.shape[2]):
        written = fresh[:, :, number] - faded[:, :, number] @ state
        outputs.append(reading[:, :, number] @ state + within[:, :, number] @ written)
        state = state * kept[:, :, number] + writing[:, :, number] @ written
    return torch.cat(outputs, 2)


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class DeltaNet(nn.Module):
    def __init__(self, dims: HybridDimensions) -> None:
        super().__init__()
        self.dims = dims
        channels = 2 * dims.key_size + dims.value_size
        self.in_proj_qkv = nn.Linear(dims.hidden, channels, bias=False)
        self.in_proj_z = nn.Linear(dims.hidden, dims.value_size, bias=False)
        self.in_proj_b = nn.Linear(dims.hidden, dims.value_heads, bias=False)
        self.in_proj_a = nn.Linear(dims.hidden, dims.value_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, dims.kernel, groups=channels, bias=False)
        # To begin with, heads forget in 2, 10, 50 and 250 rows.
        rates = 0.5 * 5.0 ** -torch.arange(dims.value_heads, dtype=torch.float32)
        self.A_log = nn.Parameter(torch.zeros(dims.value_heads))
        self.dt_bias = nn.Parameter(rates.expm1().log())
        self.norm = GatedNorm(dims.state_dim, dims.norm_epsilon)
        self.out_proj = nn.Linear(dims.value_size, dims.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, length, hidden] -> the same shape, each row of the batch from an empty state."""
        dims, length = self.dims, x.shape[1]
        padded = F.pad(self.in_proj_qkv(x), (0, 0, dims.kernel - 1, 0))
        taps = self.conv1d.weight.squeeze(1)
        mixed = sum(padded[:, k : k + length] * taps[:, k] for k in range(dims.kernel))
        parts = F.silu(mixed).split((dims.key_size, dims.key_size, dims.value_size), -1)
        query, key, value = (y.float().unflatten(-1, (-1, dims.state_dim)) for y in parts)
        shared = dims.value_heads // dims.key_heads
        query, key = (_unit(y).repeat_interleave(shared, 2) for y in (query, key))
        rate = F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        decay = -self.A_log.exp() * rate
        beta = self.in_proj_b(x).float().sigmoid()
        with torch.autocast(x.device.type, enabled=False):
            by_head = (y.transpose(1, 2) for y in (query * dims.state_dim**-0.5, key, value))
            out = delta_rule(*by_head, decay.transpose(1, 2), beta.transpose(1, 2))
        gate = self.in_proj_z(x).unflatten(-1, (-1, dims.state_dim))
        return self.out_proj(self.norm(out.transpose(1, 2), gate).flatten(2))


class GatedAttention(nn.Module):
    def __init__(self, dims: HybridDimensions) -> None:
        super().__init__()
        self.dims = dims
        wide, narrow = dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim
        self.q_proj = nn.Linear(dims.hidden, 2 * wide, bias=False)
        self.k_proj = nn.Linear(dims.hidden, narrow, bias=False)
        self.v_proj = nn.Linear(dims.hidden, narrow, bias=False)
        self.o_proj = nn.Linear(wide, dims.hidden, bias=False)
        self.q_norm = PlusOneNorm(dims.head_dim, dims.norm_epsilon)
        self.k_norm = PlusOneNorm(dims.head_dim, dims.norm_epsilon)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        size = self.dims.head_dim
        query, gate = self.q_proj(x).unflatten(-1, (-1, 2 * size)).split(size, -1)
        key, value = (y(x).unflatten(-1, (-1, size)) for y in (self.k_proj, self.v_proj))

        def turn(y: Tensor) -> Tensor:
            turns = 2 * cos.shape[-1]
            turned, rest = y.transpose(1, 2).split((turns, size - turns), -1)
            return torch.cat((rotate(turned, cos, sin), rest), -1)

        query, key = turn(self.q_norm(query)), turn(self.k_norm(key))
        value = value.transpose(1, 2)
        mixed = attend(query.to(value.dtype), key.to(value.dtype), value).transpose(1, 2)
        return self.o_proj((mixed * gate.sigmoid()).flatten(2))


class HybridLayer(nn.Module):
    def __init__(self, dims: HybridDimensions, attends: bool) -> None:
        super().__init__()
        self.input_layernorm = PlusOneNorm(dims.hidden, dims.norm_epsilon)
        if attends:
            self.self_attn = GatedAttention(dims)
        else:
            self.linear_attn = DeltaNet(dims)
        self.post_attention_layernorm = PlusOneNorm(dims.hidden, dims.norm_epsilon)
        self.mlp = Mlp(dims)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.input_layernorm(x)
        if hasattr(self, "self_attn"):
            x = x + self.self_attn(y, cos, sin)
        else:
            x = x + self.linear_attn(y)
        return x + self.mlp(self.post_attention_layernorm(x))


class HybridBody(nn.Module):
    def __init__(self, dims: HybridDimensions) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(dims.vocab, dims.hidden)
        self.layers = nn.ModuleList(
            HybridLayer(dims, dims.attends(layer)) for layer in range(dims.layers)
        )
        self.norm = PlusOneNorm(dims.hidden, dims.norm_epsilon)


class Mtp(nn.Module):
    """The last state of the target and the token after it -> the state that predicts the next."""

    def __init__(self, dims: HybridDimensions) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * dims.hidden, dims.hidden, bias=False)
        self.pre_fc_norm_embedding = PlusOneNorm(dims.hidden, dims.norm_epsilon)
        self.pre_fc_norm_hidden = PlusOneNorm(dims.hidden, dims.norm_epsilon)
        self.layers = nn.ModuleList([HybridLayer(dims, attends=True)])
        self.norm = PlusOneNorm(dims.hidden, dims.norm_epsilon)

    def forward(self, embedded: Tensor, state: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        halves = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(state))
        return self.norm(self.layers[0](self.fc(torch.cat(halves, -1)), cos, sin))


class Hybrid(nn.Module):
    """Token ids [rows, length] -> logits [rows, length, vocab]; length a multiple of 32."""

    cos: Tensor
    sin: Tensor

    def __init__(self, dims: HybridDimensions, seed: int = 0) -> None:
        super().__init__()
        self.dims = dims
        self.model = HybridBody(dims)
        self.mtp = Mtp(dims)
        set_up(self, dims, int(dims.head_dim * dims.rotated), seed)

    def states(self, tokens: Tensor) -> Tensor:
        """Return the states after the final norm, [rows, length, hidden]."""
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x)

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.model.embed_tokens.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits(self.states(tokens))

    def ahead(self, tokens: Tensor, states: Tensor) -> Tensor:
        """Return the head's states; that at position p predicts token p + 2.

        Args:
            tokens: [rows, length]: the tokens after those that the states have read.
            states: [rows, length, hidden], the target's or those of an earlier step.

        """
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        return self.mtp(self.model.embed_tokens(tokens), states, cos, sin)
