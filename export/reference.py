"""A decoder in plain numpy, one layer at a time: the reference for every export.

It reads each tensor when it needs it, so a model of any size takes the memory of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgedec.export.recurrences import convolved, gated, sigmoid, softplus, unit
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader, read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import DeltaNet, Mamba2, Mixer, ShortConv
from edgedec.models.traits import Activation, Experts


def silu(x: FloatArray) -> FloatArray:
    """Return ``x * sigmoid(x)``."""
    with np.errstate(over="ignore"):
        active: FloatArray = x / (1 + np.exp(-x))
    return active


def gelu(x: FloatArray) -> FloatArray:
    """Return GELU (1606.08415), ``x`` times the normal distribution function, by ``erf``."""
    return (x * (1 + erf(x / np.sqrt(2))) / 2).astype(np.float32)


def erf(x: FloatArray) -> FloatArray:
    """Return the error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26); numpy has none."""
    size = np.abs(x)
    t = 1 / (1 + 0.3275911 * size)
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    tail = np.polynomial.Polynomial((0.0, *terms))(t) * np.exp(-np.square(size))
    found: FloatArray = np.copysign(1 - tail, x)
    return found


def gelu_tanh(x: FloatArray) -> FloatArray:
    """Return GELU by its tanh approximation (1606.08415, section 2)."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
    active: FloatArray = x * (1 + np.tanh(inner)) / 2
    return active


ACTIVATIONS: Mapping[Activation, Callable[[FloatArray], FloatArray]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}


# Called with a layer, its rotated keys and its values, both [n, kv_heads, head_dim].
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


# Yields products with one input at a time, is sent their results in order, returns its own.
Steps = Generator[tuple[Product, ...], list[FloatArray], FloatArray]


class Reference:
    """A decoder over a tensor reader.

    Args:
        spec: the decoder.
        tensors: its weights.
        on_cache: called with what each layer would put into the cache.

    """

    def __init__(
        self, spec: DecoderSpec, tensors: TensorReader, on_cache: OnCache | None = None
    ) -> None:
        self.spec, self._tensors, self._on_cache = spec, tensors, on_cache

    def logits(self, tokens: Sequence[int]) -> FloatArray:
        """Return the logits after each token of a text, ``[n, vocab]``; padding is ``-inf``."""
        x = self.embed(tokens)
        for layer in range(self.spec.layers):
            x = self.layer(layer, x)
        x = self.final_norm(x)
        size = self.spec.vocab_size
        step = max(CHUNK_NUMBERS // self.spec.hidden, 1)
        parts = [self.head(x, i, min(i + step, size)) for i in range(0, size, step)]
        return np.concatenate(parts, axis=1)

    def states(self, tokens: Sequence[int], taps: Sequence[int]) -> FloatArray:
        """Return the residual streams before some layers, ``[n, taps * hidden]``."""
        x, found = self.embed(tokens), {}
        for layer in range(self.spec.layers):
            found[layer] = x
            x = self.layer(layer, x)
        found[self.spec.layers] = x
        return np.concatenate([found[tap][:, : self.spec.hidden] for tap in taps], axis=1)

    def embed(self, tokens: Sequence[int]) -> FloatArray:
        """Return the residual stream before the first layer, ``[n, hidden]``.

        Behind its channels are those of ``DecoderSpec.carried``, here and after each layer.
        """
        x: FloatArray = self._looked_up("embed", tokens) * np.float32(self.spec.scales.embed)
        if self.spec.position_rows:
            x = x + self._tensors.rows(self.spec.name("positions"), 0, len(tokens))
        if self.spec.per_layer_inputs:
            x = np.concatenate((x, self._per_layer_inputs(tokens, x)), axis=1)
        return x

    def _looked_up(self, role: str, tokens: Sequence[int]) -> FloatArray:
        name = self.spec.name(role)
        found = {token: self._tensors.rows(name, token, token + 1)[0] for token in set(tokens)}
        rows: FloatArray = np.stack([found[token] for token in tokens])
        return rows

    def _per_layer_inputs(self, tokens: Sequence[int], x: FloatArray) -> FloatArray:
        """Return what each layer reads besides the stream, ``[n, layers * per_layer_inputs]``."""
        width = self.spec.per_layer_inputs
        name, size = self.spec.name("per_layer_in"), self.spec.layers * width
        projected = self.product(Product(name, 0, size, x)) * np.float32(self.spec.hidden**-0.5)
        normed = self._normed(
            projected.reshape(len(x), -1, width), self._weight("per_layer_in_norm", 0)
        )
        rows = self._looked_up("per_layer_table", tokens) * np.float32(width**0.5)
        own: FloatArray = (normed.reshape(rows.shape) + rows) * np.float32(0.5**0.5)
        return own

    def layer(
        self, layer: int, x: FloatArray, on_product: Callable[[Product], None] = lambda asked: None
    ) -> FloatArray:
        """Return the residual stream ``[n, hidden]`` after a layer, with what later ones read."""
        steps = self.steps(layer, x)
        try:
            asked = next(steps)
            while True:
                for each in asked:
                    on_product(each)
                asked = steps.send([self.product(each) for each in asked])
        except StopIteration as done:
            after: FloatArray = done.value
            return after

    def product(self, asked: Product) -> FloatArray:
        """Compute what was asked for, with the decoder's own weights."""
        if not len(asked.x):  # an expert that no token chose is not read
            return np.empty((0, asked.stop - asked.start), np.float32)
        product: FloatArray = asked.x @ self._tensors.rows(*asked[:3]).T
        return product

    def steps(self, layer: int, x: FloatArray) -> Steps:
        """Compute the same layer, asking the caller for its products with matrices.

        Values that are no longer needed are released before each yield, since many texts may wait
        at the same place.
        """
        x, beside = np.split(x, [self.spec.hidden], axis=1)
        rows = self._beside(layer, beside)
        normed = self._optional_norm("attention_norm", layer, x)
        mixer = self.spec.mixer(layer)
        if mixer is None:
            mixed = yield from self._attention(layer, normed, rows)
        else:
            mixed = yield from _MIXERS[type(mixer)](self, layer, normed, mixer)
        attended = self._added("attention_post_norm", layer, mixed)
        del mixed
        if self.spec.residual == "sequential":
            x = x + attended
            del normed, attended
            fed = yield from self._mlp(layer, self._optional_norm("mlp_norm", layer, x))
            x = x + self._added("mlp_post_norm", layer, fed)
            if self.spec.per_layer_inputs:
                x = x + (yield from self._per_layer(layer, x, rows["per_layer_inputs"]))
            if self.spec.factors:
                x = x * self._weight("factor", layer)
            return np.concatenate((x, *rows.values()), axis=1) if rows else x
        if self.spec.residual == "parallel":
            normed = self._norm("mlp_norm", layer, x)
        fed = yield from self._mlp(layer, normed)
        return x + attended + self._added("mlp_post_norm", layer, fed)

    def _beside(self, layer: int, beside: FloatArray) -> dict[str, FloatArray]:
        """Return by name what is carried beside the stream into a layer."""
        carried = self.spec.carried(layer)
        parts = np.split(beside, np.cumsum([*carried.values()])[:-1], axis=1)
        return dict(zip(carried, parts, strict=True)) if carried else {}

    def _per_layer(self, layer: int, x: FloatArray, inputs: FloatArray) -> Steps:
        """Return what a layer's own input adds to the stream."""
        width = self.spec.per_layer_inputs
        (gate,) = yield from self._linears(("per_layer_gate",), layer, x, False)
        active = ACTIVATIONS[self.spec.activation](gate)
        inner = active * inputs[:, layer * width : (layer + 1) * width]
        (product,) = yield from self._linears(("per_layer_out",), layer, inner, False)
        return self._norm("per_layer_norm", layer, product)

    def final_norm(self, x: FloatArray) -> FloatArray:
        """Return the final norm's output, which the head multiplies."""
        return self._norm("final_norm", 0, x[:, : self.spec.hidden])

    def head(self, x: FloatArray, start: int, stop: int) -> FloatArray:
        """Return the logits of the tokens from ``start`` to ``stop``, ``[n, stop - start]``."""
        scales = self.spec.scales
        logits: FloatArray = x @ self._tensors.rows(self.spec.name("head"), start, stop).T
        logits = capped(logits * np.float32(scales.logits), scales.logit_cap)
        logits[:, max(self.spec.vocab_used - start, 0) :] = -np.inf
        return logits

    def _attention(self, layer: int, x: FloatArray, carried: dict[str, FloatArray]) -> Steps:
        """Return attention over ``x``; keys and values that later layers read are added."""
        spec, n = self.spec.at(layer), len(x)
        lender, roles = self.spec.lender(layer), self.spec.mixer_matrices(layer)[:-1]
        products = yield from self._linears(roles, layer, x, spec.qkv_bias)
        del x
        rows = dict(zip(roles, products, strict=True))
        query = self._heads("q", layer, rows["q"])
        if lender == layer:
            key = self._heads("k", layer, rows["k"])
            value = self._heads("v", layer, rows.get("v", rows["k"]))
            if layer in self.spec.lenders:
                carried |= {f"layers.{layer}.key": key.reshape(n, -1),
                            f"layers.{layer}.value": value.reshape(n, -1)}  # fmt: skip
        else:
            key, value = (
                carried[f"layers.{lender}.{part}"].reshape(n, -1, spec.head_dim)
                for part in ("key", "value")
            )
        tables = self.spec.rope_tables(layer, n)
        if tables is not None:
            query, key = rotate(query, *tables), rotate(key, *tables)
        if spec.qk_norm == "rotated":
            query = self._normed(query, self._weight("q_norm", layer))
            key = self._normed(key, self._weight("k_norm", layer))
        if self._on_cache is not None and lender == layer:
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
        mixed = mixed.reshape(n, -1)
        if spec.gated_attention:
            mixed *= sigmoid(rows["attention_gate"])
        del rows, products, query, key, value
        (product,) = yield from self._linears(("o",), layer, mixed, spec.out_bias)
        return product

    def _short_conv(self, layer: int, x: FloatArray, kind: ShortConv) -> Steps:
        (rows,) = yield from self._linears(("mix_in",), layer, x, False)
        before, after, x = np.split(rows, 3, axis=1)
        mixed = after * convolved(self._weight("conv", layer), before * x)
        del rows, before, after, x
        (product,) = yield from self._linears(("mix_out",), layer, mixed, False)
        return product

    def _delta_net(self, layer: int, x: FloatArray, kind: DeltaNet) -> Steps:
        step, decay = self._step(layer, x)
        beta = sigmoid(x @ self._weight("mix_beta", layer).T)
        inputs, gate = yield from self._linears(("mix_in", "mix_gate"), layer, x, False)
        del x
        inputs = silu(convolved(self._weight("conv", layer), inputs))
        query, key, value = np.split(inputs, [kind.keys, 2 * kind.keys], axis=1)
        query, key = (
            unit(part.reshape(len(step), kind.key_heads, -1)).repeat(
                kind.value_heads // kind.key_heads, axis=1
            )
            for part in (query, key)
        )
        query = query * np.float32(kind.key_dim**-0.5)
        value = value.reshape(len(step), kind.value_heads, -1)
        read = gated(query, key, value, decay, beta)
        mixed = self._normed(read, self._weight("mix_norm", layer)).reshape(gate.shape) * silu(gate)
        del inputs, gate, query, key, value, read
        (product,) = yield from self._linears(("mix_out",), layer, mixed, False)
        return product

    def _mamba2(self, layer: int, x: FloatArray, kind: Mamba2) -> Steps:
        step, decay = self._step(layer, x)
        (rows,) = yield from self._linears(("mix_in",), layer, x, False)
        del x
        gate, inputs = np.split(rows, [kind.inner], axis=1)
        inputs = convolved(self._weight("conv", layer), inputs) + self._weight("conv_bias", layer)
        states = kind.groups * kind.channels
        fed, key, query = np.split(silu(inputs), [kind.inner, kind.inner + states], axis=1)
        fed = fed.reshape(-1, kind.heads, kind.head_dim)
        key, query = (
            part.reshape(len(step), kind.groups, -1).repeat(kind.heads // kind.groups, axis=1)
            for part in (key, query)
        )
        mixed = gated(query, key, step[:, :, None] * fed, decay)
        mixed += self._weight("skip", layer)[:, None] * fed
        normed = self._normed(
            mixed.reshape(len(gate), -1) * silu(gate), self._weight("mix_norm", layer)
        )
        del rows, gate, inputs, fed, key, query, mixed
        (product,) = yield from self._linears(("mix_out",), layer, normed, False)
        return product

    def _step(self, layer: int, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the steps of a recurrence's heads, and what they multiply its state by."""
        step = x @ self._weight("mix_step", layer).T + self._weight("step_bias", layer)
        step = softplus(step)
        return step, np.exp(step * self._weight("decay", layer))

    def _heads(self, role: str, layer: int, rows: FloatArray) -> FloatArray:
        """Return query, key or value, ``[n, heads, head_dim]``, before any rotation."""
        spec = self.spec.at(layer)
        normed = role != "v"
        if normed and spec.qk_norm == "all":
            rows = self._normed(rows, self._weight(f"{role}_norm", layer))
        rows = rows.reshape(len(rows), -1, spec.head_dim)
        if normed and spec.qk_norm in ("head", "heads"):
            # One weight for all heads, or one for each.
            weight = self._weight(f"{role}_norm", layer).reshape(-1, spec.head_dim)
            rows = self._normed(rows, weight)
        if not normed and spec.norm.values:
            rows = self._normed(rows, np.ones(spec.head_dim, np.float32))
        return rows

    def _mlp(self, layer: int, x: FloatArray) -> Steps:
        experts = self.spec.at(layer).experts
        if experts is None:
            return (yield from self._dense(layer, x))
        mixed = yield from self._mixture(layer, x, experts)
        if experts.shared:
            own = yield from self._dense(layer, x, "shared_")
            if experts.shared_gated:
                own *= sigmoid(x @ self._weight("shared_router", layer).T)
            mixed += own
        return mixed

    def _dense(self, layer: int, x: FloatArray, of: str = "") -> Steps:
        spec, biased = self.spec, self.spec.mlp_bias and not of
        roles = (f"{of}up", f"{of}gate") if spec.gated else (f"{of}up",)
        fed = yield from self._linears(roles, layer, x, biased)
        inner = self._activated(fed[-1], fed[0])
        del fed, x
        (product,) = yield from self._linears((f"{of}down",), layer, inner, biased)
        return product

    def _activated(self, gate: FloatArray, up: FloatArray) -> FloatArray:
        active: FloatArray = ACTIVATIONS[self.spec.activation](gate)
        return active * up if self.spec.gated else active

    def _mixture(self, layer: int, x: FloatArray, experts: Experts) -> Steps:
        """Return the sum of each row's experts, weighted by the router's shares."""
        logits = x @ self._weight("router", layer).T
        shares = sigmoid(logits) if experts.sigmoid else softmax(logits)
        ranked = shares + self._weight("probs_bias", layer) if experts.sigmoid else shares
        chosen = np.argsort(-ranked, axis=1, kind="stable")[:, : experts.used]
        weights = np.take_along_axis(shares, chosen, axis=1)
        if experts.renormalised:
            weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.zeros_like(x)
        for expert in range(experts.count):
            rows, indices = np.nonzero(chosen == expert)
            own = yield from self._expert(layer, expert, x[rows])
            mixed[rows] += weights[rows, indices, None] * own
        return mixed

    def _expert(self, layer: int, expert: int, x: FloatArray) -> Steps:
        def product(role: str, x: FloatArray, rows: int) -> Product:
            name = self.spec.name(f"experts_{role}", layer)
            return Product(name, expert * rows, (expert + 1) * rows, x)

        spec = self.spec
        roles = ("up", "gate") if spec.gated else ("up",)
        fed = yield tuple(product(role, x, spec.ffn) for role in roles)
        inner = self._activated(fed[-1], fed[0])
        del fed, x
        (own,) = yield (product("down", inner, spec.hidden),)
        return own

    def _linears(
        self, roles: Sequence[str], layer: int, x: FloatArray, biased: bool
    ) -> Generator[tuple[Product, ...], list[FloatArray], list[FloatArray]]:
        """Return the products of one input with several matrices, biases added."""
        names = [self.spec.name(role, layer) for role in roles]
        products = yield tuple(Product(name, 0, self._tensors.shape(name)[0], x) for name in names)
        if not biased:
            return products
        biases = [self._weight(f"{role}_bias", layer) for role in roles]
        return [product + bias for product, bias in zip(products, biases, strict=True)]

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


_MIXERS: Mapping[type[Mixer], Callable[..., Steps]] = {
    ShortConv: Reference._short_conv,
    DeltaNet: Reference._delta_net,
    Mamba2: Reference._mamba2,
}


def capped(x: FloatArray, cap: float) -> FloatArray:
    """Return ``cap * tanh(x / cap)``; 0 caps nothing."""
    if not cap:
        return x
    soft: FloatArray = np.tanh(x / np.float32(cap)) * np.float32(cap)
    return soft


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Apply the rotary embedding by tables ``[n, pairs]`` to ``[n, heads, head_dim]``."""
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
    """Return the softmax along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    share: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return share
