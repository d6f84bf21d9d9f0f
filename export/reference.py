"""A decoder in plain numpy, one layer at a time: what every export is held to.

It reads each tensor when it needs it, so a model of any size takes the memory of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader, read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Activation, Experts

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
        """The residual stream before the first layer, ``[n, hidden]``."""
        name = self.spec.name("embed")
        found = {token: self._tensors.rows(name, token, token + 1)[0] for token in set(tokens)}
        x: FloatArray = np.stack([found[token] for token in tokens]) * np.float32(
            self.spec.scales.embed
        )
        if self.spec.position_rows:
            x = x + self._tensors.rows(self.spec.name("positions"), 0, len(tokens))
        return x

    def layer(self, layer: int, x: FloatArray) -> FloatArray:
        """The residual stream ``[n, hidden]`` after a layer."""
        normed = self._optional_norm("attention_norm", layer, x)
        attended = self._added("attention_post_norm", layer, self._attention(layer, normed))
        if self.spec.residual == "sequential":
            x = x + attended
            normed = self._optional_norm("mlp_norm", layer, x)
            return x + self._added("mlp_post_norm", layer, self._mlp(layer, normed))
        if self.spec.residual == "parallel":
            normed = self._norm("mlp_norm", layer, x)
        return x + attended + self._added("mlp_post_norm", layer, self._mlp(layer, normed))

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

    def _attention(self, layer: int, x: FloatArray) -> FloatArray:
        spec, n = self.spec, len(x)
        query, key, value = self._qkv(layer, x)
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
        return self._linear("o", layer, mixed.reshape(n, -1), spec.out_bias)

    def _qkv(self, layer: int, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Query, key and value, ``[n, heads, head_dim]``, before any rotation."""
        spec = self.spec
        query, key, value = (self._linear(role, layer, x, spec.qkv_bias) for role in "qkv")
        if spec.qk_norm == "all":
            query = self._normed(query, self._weight("q_norm", layer))
            key = self._normed(key, self._weight("k_norm", layer))
        query, key, value = (
            part.reshape(len(x), -1, spec.head_dim) for part in (query, key, value)
        )
        if spec.qk_norm in ("head", "heads"):
            # One weight for all heads, or one for each.
            query = self._normed(query, self._weight("q_norm", layer).reshape(-1, spec.head_dim))
            key = self._normed(key, self._weight("k_norm", layer).reshape(-1, spec.head_dim))
        return query, key, value

    def _mlp(self, layer: int, x: FloatArray) -> FloatArray:
        spec = self.spec
        if spec.experts is not None:
            return self._mixture(layer, x, spec.experts)
        act = ACTIVATIONS[spec.activation]
        up = self._linear("up", layer, x, spec.mlp_bias)
        inner = act(self._linear("gate", layer, x, spec.mlp_bias)) * up if spec.gated else act(up)
        return self._linear("down", layer, inner, spec.mlp_bias)

    def _mixture(self, layer: int, x: FloatArray, experts: Experts) -> FloatArray:
        """Each row through its own experts, weighed by the shares that the router gives them."""
        shares = softmax(x @ self._weight("router", layer).T)
        chosen = np.argsort(-shares, axis=1, kind="stable")[:, : experts.used]
        weights = np.take_along_axis(shares, chosen, axis=1)
        if experts.renormalised:
            weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.zeros_like(x)
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            mixed[rows] += weights[rows, places, None] * self._expert(layer, expert, x[rows])
        return mixed

    def _expert(self, layer: int, expert: int, x: FloatArray) -> FloatArray:
        def product(role: str, x: FloatArray, rows: int) -> FloatArray:
            name = self.spec.name(f"experts_{role}", layer)
            found: FloatArray = x @ self._tensors.rows(name, expert * rows, (expert + 1) * rows).T
            return found

        spec, act = self.spec, ACTIVATIONS[self.spec.activation]
        up = product("up", x, spec.ffn)
        inner = act(product("gate", x, spec.ffn)) * up if spec.gated else act(up)
        return product("down", inner, spec.hidden)

    def _linear(self, role: str, layer: int, x: FloatArray, biased: bool) -> FloatArray:
        product: FloatArray = x @ self._weight(role, layer).T
        if biased:
            product += self._weight(f"{role}_bias", layer)
        return product

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
