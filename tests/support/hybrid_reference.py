"""The equations of Qwen3.5's and LFM2's decoders in numpy, one token at a time, in float64.

Sources: the families' own description of a layer (gated delta rule 2412.06464, gated attention
2505.06708); names of tensors are those of ``tiny_hybrids``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tiny_hybrids as tiny

Float = npt.NDArray[np.float64]


class HybridReference:
    """A text's caches and states, and the logits of its tokens.

    Args:
        arch: ``qwen35``, ``qwen35moe`` or ``lfm2``.
        weights: by name.

    """

    def __init__(self, arch: str, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
        self._short = arch == "lfm2"
        self._mixture, self._heads = arch == "qwen35moe", tiny.heads_of(arch)
        self._weights = {name: values.astype(np.float64) for name, values in weights.items()}
        taps, keys = tiny.SHORT_TAPS if self._short else tiny.TAPS, tiny.KEY_HEADS * tiny.STATE
        channels = tiny.HIDDEN if self._short else 2 * keys + tiny.VALUE_HEADS * tiny.STATE
        self._inputs = [np.zeros((taps - 1, channels)) for _ in range(tiny.LAYERS)]
        self._states = np.zeros((tiny.LAYERS, tiny.VALUE_HEADS, tiny.STATE, tiny.STATE))
        self._keys: list[Float] = []  # of the only layer that attends
        self._values: list[Float] = []

    def logits(self, tokens: Sequence[int]) -> Float:
        """Return the logits after each further token, ``[tokens, vocab]``."""
        return np.stack([self._next(token) for token in tokens])

    def _next(self, token: int) -> Float:
        embedding = self._weights["token_embd.weight"]
        x = embedding[token]
        for layer in range(tiny.LAYERS):
            own = {
                name.removeprefix(f"blk.{layer}."): values
                for name, values in self._weights.items()
                if name.startswith(f"blk.{layer}.")
            }
            normed = _rms(x, own["attn_norm.weight"])
            if tiny.attends(layer):
                x = x + self._attention(own, normed)
            elif self._short:
                x = x + self._short_convolution(own, normed, layer)
            else:
                x = x + self._delta_rule(own, normed, layer)
            norm = own["ffn_norm.weight" if self._short else "post_attention_norm.weight"]
            x = x + self._feed_forward(own, _rms(x, norm))
        if self._short:
            return embedding @ _rms(x, self._weights["token_embd_norm.weight"])
        return self._weights["output.weight"] @ _rms(x, self._weights["output_norm.weight"])

    # -- mixers ---------------------------------------------------------------------------------

    def _attention(self, own: dict[str, Float], x: Float) -> Float:
        """Grouped attention; Qwen3.5's has a gate beside each head's query."""
        (count, kv_count), dim = self._heads, tiny.HEAD_DIM
        query = (own["attn_q.weight"] @ x).reshape(count, -1)
        query, gate = query[:, :dim], query[:, dim:]
        key = (own["attn_k.weight"] @ x).reshape(kv_count, dim)
        value = (own["attn_v.weight"] @ x).reshape(kv_count, dim)
        at, rotated = len(self._keys), dim if self._short else tiny.ROTATED
        query = _rotate(_rms(query, own["attn_q_norm.weight"]), at, rotated)
        self._keys.append(_rotate(_rms(key, own["attn_k_norm.weight"]), at, rotated))
        self._values.append(value)
        each = count // kv_count
        heads = []
        for head in range(count):
            keys = np.stack(self._keys)[:, head // each]
            scores = keys @ query[head] / np.sqrt(dim)
            shares = np.exp(scores - scores.max())
            heads.append(shares / shares.sum() @ np.stack(self._values)[:, head // each])
        found = np.stack(heads)
        found = found if self._short else found * _sigmoid(gate)
        return own["attn_output.weight"] @ found.reshape(-1)

    def _convolved(self, weight: Float, x: Float, layer: int) -> Float:
        """A causal convolution of each channel over time."""
        window = np.vstack([self._inputs[layer], x])
        self._inputs[layer] = window[1:]
        found: Float = (window * weight.T).sum(axis=0)
        return found

    def _short_convolution(self, own: dict[str, Float], x: Float, layer: int) -> Float:
        before, after, x = np.split(own["shortconv.in_proj.weight"] @ x, 3)
        mixed = self._convolved(own["shortconv.conv.weight"], before * x, layer)
        return own["shortconv.out_proj.weight"] @ (after * mixed)

    def _delta_rule(self, own: dict[str, Float], x: Float, layer: int) -> Float:
        mixed = self._convolved(own["ssm_conv1d.weight"], own["attn_qkv.weight"] @ x, layer)
        width = tiny.KEY_HEADS * tiny.STATE
        queries, keys, values = np.split(_silu(mixed), [width, 2 * width])
        queries = _unit(queries.reshape(-1, tiny.STATE)) / np.sqrt(tiny.STATE)
        keys, values = _unit(keys.reshape(-1, tiny.STATE)), values.reshape(-1, tiny.STATE)
        steps = np.log1p(np.exp(own["ssm_alpha.weight"] @ x + own["ssm_dt.bias"]))
        decays, betas = np.exp(own["ssm_a"] * steps), _sigmoid(own["ssm_beta.weight"] @ x)
        read = []
        for head in range(tiny.VALUE_HEADS):
            # The file has value heads in an order in which each key head serves every n-th.
            query, key = queries[head % tiny.KEY_HEADS], keys[head % tiny.KEY_HEADS]
            state = self._states[layer, head]
            state *= decays[head]
            state += np.outer(key, betas[head] * (values[head] - key @ state))
            read.append(query @ state)
        gates = (own["attn_gate.weight"] @ x).reshape(-1, tiny.STATE)
        normed = _rms(np.stack(read), own["ssm_norm.weight"]) * _silu(gates)
        return own["ssm_out.weight"] @ normed.reshape(-1)

    # -- feed forward ---------------------------------------------------------------------------

    def _feed_forward(self, own: dict[str, Float], x: Float) -> Float:
        if not self._mixture:
            return _gated(x, *(own[f"ffn_{name}.weight"] for name in ("gate", "up", "down")))
        scores = own["ffn_gate_inp.weight"] @ x
        chosen = np.argsort(-scores)[: tiny.CHOSEN]
        shares = np.exp(scores[chosen] - scores.max())
        parts = [own[f"ffn_{name}_exps.weight"] for name in ("gate", "up", "down")]
        every = [_gated(x, *(part[expert] for part in parts)) for expert in chosen]
        found = (shares / shares.sum()) @ np.stack(every)
        shared = _gated(x, *(own[f"ffn_{name}_shexp.weight"] for name in ("gate", "up", "down")))
        return found + _sigmoid(own["ffn_gate_inp_shexp.weight"] @ x) * shared


def _gated(x: Float, gate: Float, up: Float, down: Float) -> Float:
    return down @ (_silu(gate @ x) * (up @ x))


def _rms(x: Float, weight: Float) -> Float:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + tiny.EPS) * weight


def _unit(x: Float) -> Float:
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + tiny.EPS)


def _rotate(heads: Float, position: int, count: int) -> Float:
    """Rotate the first channels of each head, the first half with the second."""
    half = count // 2
    angles = position * tiny.ROPE_BASE ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second, rest = heads[:, :half], heads[:, half:count], heads[:, count:]
    return np.hstack([first * cos - second * sin, second * cos + first * sin, rest])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _silu(x: Float) -> Float:
    found: Float = x * _sigmoid(x)
    return found
