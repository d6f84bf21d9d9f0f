"""A decoder in plain numpy, one layer at a time: what every export is held to.

It reads each tensor when it needs it, so a model of any size takes the memory of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader, read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Activation, Experts

# Told a layer's rotated keys and its values, both [n, kv_heads, head_dim].
OnCache = Callable[[int, FloatArray, FloatArray], None]


class Product(NamedTuple):
    """A product that a layer asks for: ``x`` with the transpose of some rows of a matrix.

    Attributes:
        name: the matrix among the canonical tensors.
        start, stop: its rows.
        x: the input, ``[n, in]``.

    """

    name: str
    start: int
    stop: int
    x: FloatArray


# Asks for products one after the other and returns its own result.
Steps = Generator[Product, FloatArray, FloatArray]


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
        """The residual stream before the first layer, ``[n, hidden]``."""
        name = self.spec.name("embed")
        found = {token: self._tensors.rows(name, token, token + 1)[0] for token in set(tokens)}
        x: FloatArray = np.stack([found[token] for token in tokens]) * np.float32(
            self.spec.scales.embed
        )
        if self.spec.position_rows:
            x = x + self._tensors.rows(self.spec.name("positions"), 0, len(tokens))
        return x

    def layer(
        self, layer: int, x: FloatArray, hear: Callable[[Product], None] = lambda asked: None
    ) -> FloatArray:
        """Return the residual stream ``[n, hidden]`` after a layer; ``hear`` gets each product."""
        steps = self.steps(layer, x)
        try:
            asked = next(steps)
            while True:
                hear(asked)
                asked = steps.send(asked.x @ self._tensors.rows(*asked[:3]).T)
        except StopIteration as done:
            after: FloatArray = done.value
            return after

    def steps(self, layer: int, x: FloatArray) -> Steps:
        """Compute the same layer, asking the caller for each product with a matrix."""
        normed = self._optional_norm("attention_norm", layer, x)
        mixed = yield from self._attention(layer, normed)
        attended = self._added("attention_post_norm", layer, mixed)
        if self.spec.residual == "sequential":
            x = x + attended
            normed = self._optional_norm("mlp_norm", layer, x)
            fed = yield from self._mlp(layer, normed)
            return x + self._added("mlp_post_norm", layer, fed)
        if self.spec.residual == "parallel":
            normed = self._norm("mlp_norm", layer, x)
        fed = yield from self._mlp(layer, normed)
        return x + attended + self._added("mlp_post_norm", layer, fed)

    def final_norm(self, x: FloatArray) -> FloatArray:
        """Return the final norm's output, which the head multiplies."""
        return self._norm("final_norm", 0, x)

    def head(self, x: FloatArray, start: int, stop: int) -> FloatArray:
        """Logits of the tokens from ``start`` to ``stop``, ``[n, stop - start]``."""
        scales = self.spec.scales
        logits: FloatArray = x @ self._tensors.rows(self.spec.name("head"), start, stop).T
        logits = capped(logits * np.float32(scales.logits), scales.logit_cap)
        logits[:, max(self.spec.vocab_used - start, 0) :] = -np.inf
        return logits

    def _attention(self, layer: int, x: FloatArray) -> Steps:
        spec, n = self.spec, len(x)
        query = yield from self._heads("q", layer, x)
        key = yield from self._heads("k", layer, x)
        value = yield from self._heads("v", layer, x)
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
            scores = query[head] @ key[shared].T * np.float32(spec.attention_scale)
            scores = capped(scores, spec.scales.attention_cap)
            mixed[:, head] = softmax(np.where(seen, scores, -np.inf)) @ value[shared]
        return (yield from self._linear("o", layer, mixed.reshape(n, -1), spec.out_bias))

    def _heads(self, role: str, layer: int, x: FloatArray) -> Steps:
        """Query, key or value, ``[n, heads, head_dim]``, before any rotation."""
        spec = self.spec
        rows = yield from self._linear(role, layer, x, spec.qkv_bias)
        normed = role != "v"
        if normed and spec.qk_norm == "all":
            rows = self._normed(rows, self._weight(f"{role}_norm", layer))
        rows = rows.reshape(len(x), -1, spec.head_dim)
        if normed and spec.qk_norm in ("head", "heads"):
            # One weight for all heads, or one for each.
            weight = self._weight(f"{role}_norm", layer).reshape(-1, spec.head_dim)
            rows = self._normed(rows, weight)
        return rows

    def _mlp(self, layer: int, x: FloatArray) -> Steps:
        spec = self.spec
        if spec.experts is not None:
            return (yield from self._mixture(layer, x, spec.experts))
        up = yield from self._linear("up", layer, x, spec.mlp_bias)
        gate = up
        if spec.gated:
            gate = yield from self._linear("gate", layer, x, spec.mlp_bias)
        inner = self._activated(gate, up)
        del gate, up  # whoever waits for this product keeps what is named here
        return (yield from self._linear("down", layer, inner, spec.mlp_bias))

    def _activated(self, gate: FloatArray, up: FloatArray) -> FloatArray:
        active: FloatArray = ACTIVATIONS[self.spec.activation](gate)
        return active * up if self.spec.gated else active

    def _mixture(self, layer: int, x: FloatArray, experts: Experts) -> Steps:
        """Each row through its own experts, weighed by the shares that the router gives them."""
        shares = softmax(x @ self._weight("router", layer).T)
        chosen = np.argsort(-shares, axis=1, kind="stable")[:, : experts.used]
        weights = np.take_along_axis(shares, chosen, axis=1)
        if experts.renormalised:
            weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.zeros_like(x)
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            own = yield from self._expert(layer, int(expert), x[rows])
            mixed[rows] += weights[rows, places, None] * own
        return mixed

    def _expert(self, layer: int, expert: int, x: FloatArray) -> Steps:
        def product(role: str, x: FloatArray, rows: int) -> Product:
            name = self.spec.name(f"experts_{role}", layer)
            return Product(name, expert * rows, (expert + 1) * rows, x)

        spec = self.spec
        up = yield product("up", x, spec.ffn)
        gate = (yield product("gate", x, spec.ffn)) if spec.gated else up
        return (yield product("down", self._activated(gate, up), spec.hidden))

    def _linear(self, role: str, layer: int, x: FloatArray, biased: bool) -> Steps:
        name = self.spec.name(role, layer)
        product = yield Product(name, 0, self._tensors.shape(name)[0], x)
        return product + self._weight(f"{role}_bias", layer) if biased else product

    def _added(self, role: str, layer: int, x: FloatArray) -> FloatArray:
        """Return what attention or MLP adds to the residual stream."""
        added: FloatArray = self._optional_norm(role, layer, x)
        added = added * np.float32(self.spec.scales.residual)
        return added

    def _optional_norm(self, role: str, layer: int, x: FloatArray) -> FloatArray:
        return self._norm(role, layer, x) if role in self.spec.layer_norms else x

    def _norm(self, role: str, layer: int, x: FloatArray) -> FloatArray:
        normed = self._normed(x, self._weight(role, layer))
        return normed + self._weight(f"{role}_bias", layer) if self.spec.norm.bias else normed

    def _normed(self, x: FloatArray, weight: FloatArray) -> FloatArray:
        if self.spec.norm.kind == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        mean = np.square(x).mean(axis=-1, keepdims=True)
        normed: FloatArray = x / np.sqrt(mean + np.float32(self.spec.norm.epsilon)) * weight
        return normed

    def _weight(self, role: str, layer: int) -> FloatArray:
        return read(self._tensors, self.spec.name(role, layer))


def silu(x: FloatArray) -> FloatArray:
    """``x * sigmoid(x)``."""
    with np.errstate(over="ignore"):
        active: FloatArray = x / (1 + np.exp(-x))
    return active


def gelu(x: FloatArray) -> FloatArray:
    """``x`` times the normal distribution function (1606.08415), by the error function."""
    return (x * (1 + erf(x / np.sqrt(2))) / 2).astype(np.float32)


def erf(x: FloatArray) -> FloatArray:
    """The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26); numpy has none."""
    size = np.abs(x)
    t = 1 / (1 + 0.3275911 * size)
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    tail = np.polynomial.Polynomial((0.0, *terms))(t) * np.exp(-np.square(size))
    found: FloatArray = np.copysign(1 - tail, x)
    return found


def gelu_tanh(x: FloatArray) -> FloatArray:
    """GELU by tanh (1606.08415, section 2)."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    active: FloatArray = x * (1 + np.tanh(inner)) / 2
    return active


ACTIVATIONS: Mapping[Activation, Callable[[FloatArray], FloatArray]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


def capped(x: FloatArray, cap: float) -> FloatArray:
    """``cap * tanh(x / cap)``; 0 caps nothing."""
    if not cap:
        return x
    soft: FloatArray = np.tanh(x / np.float32(cap)) * np.float32(cap)
    return soft


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Rotary embedding of ``[n, heads, head_dim]`` by tables ``[n, pairs]``; the rest passes."""
    pairs = cos.shape[1]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    cos, sin = cos[:, None], sin[:, None]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return np.concatenate((*turned, rest), axis=-1)


def causal_mask(n: int, window: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return the causal mask ``[n, n]``, at most ``window`` tokens back (0: all)."""
    distance = np.arange(n)[:, None] - np.arange(n)
    return (distance >= 0) & (distance < (window or n))


def softmax(scores: FloatArray) -> FloatArray:
    """Along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return share
