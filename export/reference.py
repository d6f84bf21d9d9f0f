"""A decoder in plain numpy, one layer at a time: what every export is held to.

It reads each tensor when it needs it, so a model of any size takes the memory of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader, read
from edgedec.models.decoder import DecoderSpec

# Told a layer's rotated keys and its values, both [n, kv_heads, head_dim].
OnCache = Callable[[int, FloatArray, FloatArray], None]


class Reference:
    """A decoder over a tensor reader.

    Args:
        spec: the decoder.
        tensors: its weights.
        on_cache: hears what each layer would put into the cache.

    """

    def __init__(
        self, spec: DecoderSpec, tensors: TensorReader, on_cache: OnCache | None = None
    ) -> None:
        self.spec, self._tensors, self._on_cache = spec, tensors, on_cache

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        """Logits after each token of a text, ``[n, vocab]``; padding rows are ``-inf``."""
        x = self.embed(tokens)
        for layer in range(self.spec.layers):
            x = self.layer(layer, x)
        x = self.final_norm(x)
        size = self.spec.vocab_size
        step = max(CHUNK_NUMBERS // self.spec.hidden, 1)
        parts = [self.head(x, i, min(i + step, size)) for i in range(0, size, step)]
        return np.concatenate(parts, axis=1)

    def embed(self, tokens: Sequence[int]) -> FloatArray:
        """Embeddings of the tokens, ``[n, hidden]``."""
        name = self.spec.name("embed")
        found = {token: self._tensors.rows(name, token, token + 1)[0] for token in set(tokens)}
        return np.stack([found[token] for token in tokens])

    def layer(self, layer: int, x: FloatArray) -> FloatArray:
        """The residual stream ``[n, hidden]`` after a layer."""
        x = x + self._attention(layer, self._norm("attention_norm", layer, x))
        return x + self._mlp(layer, self._norm("mlp_norm", layer, x))

    def final_norm(self, x: FloatArray) -> FloatArray:
        """What the head multiplies."""
        return self._norm("final_norm", 0, x)

    def head(self, x: FloatArray, start: int, stop: int) -> FloatArray:
        """Logits of the tokens from ``start`` to ``stop``, ``[n, stop - start]``."""
        logits: FloatArray = x @ self._tensors.rows(self.spec.name("head"), start, stop).T
        logits[:, max(self.spec.vocab_used - start, 0) :] = -np.inf
        return logits

    def _attention(self, layer: int, x: FloatArray) -> FloatArray:
        spec, n = self.spec, len(x)
        biased = spec.qkv_bias
        query = self._linear("q", layer, x, biased).reshape(n, spec.heads, spec.head_dim)
        key = self._linear("k", layer, x, biased).reshape(n, spec.kv_heads, spec.head_dim)
        value = self._linear("v", layer, x, biased).reshape(n, spec.kv_heads, spec.head_dim)
        if spec.qk_norm:
            query = self._norm("q_norm", layer, query)
            key = self._norm("k_norm", layer, key)
        tables = spec.rope_tables(layer, n)
        if tables is not None:
            query, key = rotate(query, *tables), rotate(key, *tables)
        if self._on_cache is not None:
            self._on_cache(layer, key, value)
        seen = causal_mask(n, spec.windows[layer])
        mixed = np.empty_like(query)
        # Contiguous per head: matrix products on slices across heads are several times slower.
        query, key, value = (
            np.ascontiguousarray(part.transpose(1, 0, 2)) for part in (query, key, value)
        )
        for head in range(spec.heads):
            shared = head * spec.kv_heads // spec.heads
            scores = query[head] @ key[shared].T / np.float32(np.sqrt(spec.head_dim))
            mixed[:, head] = softmax(np.where(seen, scores, -np.inf)) @ value[shared]
        return self._linear("o", layer, mixed.reshape(n, -1), spec.out_bias)

    def _mlp(self, layer: int, x: FloatArray) -> FloatArray:
        biased = self.spec.mlp_bias
        gate = self._linear("gate", layer, x, biased)
        with np.errstate(over="ignore"):
            gate /= 1 + np.exp(-gate)
        return self._linear("down", layer, gate * self._linear("up", layer, x, biased), biased)

    def _linear(self, role: str, layer: int, x: FloatArray, biased: bool) -> FloatArray:
        product: FloatArray = x @ read(self._tensors, self.spec.name(role, layer)).T
        if biased:
            product += read(self._tensors, self.spec.name(f"{role}_bias", layer))
        return product

    def _norm(self, role: str, layer: int, x: FloatArray) -> FloatArray:
        weight = read(self._tensors, self.spec.name(role, layer))
        mean = np.square(x).mean(axis=-1, keepdims=True)
        normed: FloatArray = x / np.sqrt(mean + np.float32(self.spec.norm.epsilon)) * weight
        return normed


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Rotary embedding of ``[n, heads, head_dim]`` by tables ``[n, head_dim / 2]``."""
    first, second = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def causal_mask(n: int, window: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Who sees whom, ``[n, n]``: itself and what came before, at most ``window`` (0: all)."""
    distance = np.arange(n)[:, None] - np.arange(n)
    return (distance >= 0) & (distance < (window or n))


def softmax(scores: FloatArray) -> FloatArray:
    """Along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return share
