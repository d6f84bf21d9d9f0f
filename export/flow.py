"""The data flow of a decoder's layer, shared by the emitters of graphs.

An emitter provides the building blocks (``Parts``) and attention; the residual stream and the order
of norms are defined here once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from edgedec.models.decoder import DecoderSpec

V = TypeVar("V")


class Parts(Protocol[V]):
    """Building blocks of a graph; ``V`` is the type of its values, ``out`` the name of a result."""

    @property
    def spec(self) -> DecoderSpec:
        """The decoder."""
        ...

    def linear(self, out: str, x: V, layer: int, roles: tuple[str, ...], bias: bool) -> V:
        """Emit the product with one or more stacked matrices."""
        ...

    def norm(self, out: str, x: V, role: str, layer: int = 0) -> V:
        """Emit the norm of a value of ``hidden`` channels."""
        ...

    def norm_of_sum(
        self, out: str, total: str, x: V, branch: V | None, role: str, layer: int = 0
    ) -> tuple[V, V]:
        """Emit the norm of ``x + branch``, and that sum, named ``total``."""
        ...

    def add(self, out: str, x: V, y: V) -> V:
        """Emit a sum."""
        ...

    def same(self, out: str, x: V) -> V:
        """Emit a value under another name."""
        ...

    def scaled(self, out: str, x: V, factor: float) -> V:
        """Emit ``x`` times a constant."""
        ...

    def activated(self, out: str, x: V) -> V:
        """Emit the MLP's activation."""
        ...

    def multiplied(self, out: str, x: V, y: V) -> V:
        """Emit a product of two values, element by element."""
        ...

    def halves(self, x: V, first: str, second: str) -> tuple[V, V]:
        """Emit the two halves of the last axis."""
        ...

    def mixture(self, layer: int, x: V, out: str, shared: V | None) -> V:
        """Emit the mixture of experts; ``shared``: the output of the MLP beside it, which is added.

        Raises:
            UnsupportedArchitecture: the format does not support it.

        """
        ...


class Flow(Generic[V]):
    """Emits the layers of one decoder.

    The residual stream is represented by two values, whose sum it is, so that the addition can be
    fused with the following norm.

    Args:
        attention: emits attention over a layer's normed input, with its output projection, as
            ``attention(layer, x, out)``.
        kept: if attention returns some rows only, emits those rows of another value, as
            ``kept(x, out)``; the rest of the layer computes no others.
        end: emits what a layer does after its MLP, if there is more, as ``end(layer, x, branch)``.

    """

    def __init__(
        self,
        parts: Parts[V],
        attention: Callable[[int, V, str], V],
        kept: Callable[[V, str], V] | None = None,
        end: Callable[[int, V, V], tuple[V, V]] | None = None,
    ) -> None:
        self._parts, self._spec, self._attention = parts, parts.spec, attention
        self._kept, self._end = kept, end

    def layer(self, layer: int, x: V, branch: V | None) -> tuple[V, V]:
        """Emit one layer. The residual stream is ``x + branch``, before and after.

        The returned values are named ``layers.<layer>.stream`` and ``layers.<layer>.branch``.
        """
        at, stream = f"layers.{layer}", f"layers.{layer}.stream"
        kind = self._spec.residual
        if kind == "sequential":
            normed, x = self._normed(f"{at}.entry", x, branch, "attention_norm", layer)
            branch = self._attended(layer, normed, f"{at}.attended")
            x = self._kept(x, f"{at}.entry.kept") if self._kept else x
            if self._end is None:
                normed, x = self._normed(stream, x, branch, "mlp_norm", layer)
                return x, self._fed(layer, normed, f"{at}.branch")
            normed, x = self._normed(f"{at}.mixed_stream", x, branch, "mlp_norm", layer)
            return self._end(layer, x, self._fed(layer, normed, f"{at}.mlp"))
        normed, x = self._normed(stream, x, branch, "attention_norm", layer)
        attended = self._attended(layer, normed, f"{at}.attended")
        x = self._kept(x, f"{stream}.kept") if self._kept else x
        if kind == "parallel":
            normed = self._parts.norm(f"{at}.mlp_norm", x, "mlp_norm", layer)
        elif self._kept:
            normed = self._kept(normed, f"{at}.attention_norm.kept")
        fed = self._fed(layer, normed, f"{at}.fed")
        return x, self._parts.add(f"{at}.branch", attended, fed)

    def _normed(self, total: str, x: V, branch: V | None, role: str, layer: int) -> tuple[V, V]:
        """Emit the norm that attention or MLP reads, and ``total``, the sum ``x + branch``."""
        if role in self._spec.layer_norms:
            return self._parts.norm_of_sum(f"layers.{layer}.{role}", total, x, branch, role, layer)
        summed = self._parts.add(total, x, branch) if branch else self._parts.same(total, x)
        return summed, summed

    def _attended(self, layer: int, x: V, out: str) -> V:
        return self._branch(
            out, layer, "attention_post_norm", lambda name: self._attention(layer, x, name)
        )

    def _fed(self, layer: int, x: V, out: str) -> V:
        return self._branch(out, layer, "mlp_post_norm", lambda name: self.mlp(layer, x, name))

    def _branch(self, out: str, layer: int, role: str, compute: Callable[[str], V]) -> V:
        """Emit a term of the residual stream, normed and scaled according to the spec."""
        factor, parts = self._spec.scales.residual, self._parts
        normed, scaled = role in self._spec.layer_norms, factor != 1
        value = compute(f"{out}.product" if normed or scaled else out)
        if normed:
            value = parts.norm(f"{out}.normed" if scaled else out, value, role, layer)
        return parts.scaled(out, value, factor) if scaled else value

    def mlp(self, layer: int, x: V, out: str) -> V:
        """Emit ``down(act(gate(x)) * up(x))``, or ``down(act(up(x)))`` without a gate."""
        experts, parts = self._spec.at(layer).experts, self._parts
        if experts is None:
            return self._dense(layer, x, out, f"layers.{layer}")
        shared = None
        if experts.shared:
            shared = self._dense(layer, x, f"{out}.beside", f"layers.{layer}.shared", "shared_")
        return parts.mixture(layer, x, out, shared)

    def _dense(self, layer: int, x: V, out: str, at: str, of: str = "") -> V:
        spec, parts, biased = self._spec, self._parts, self._spec.mlp_bias and not of
        if not spec.gated:
            up = parts.linear(f"{at}.up", x, layer, (f"{of}up",), biased)
            inner = parts.activated(f"{at}.active", up)
        else:
            both = parts.linear(f"{at}.gate_up", x, layer, (f"{of}gate", f"{of}up"), biased)
            gate, up = parts.halves(both, f"{at}.gate", f"{at}.up")
            inner = parts.multiplied(f"{at}.gated", parts.activated(f"{at}.active", gate), up)
        return parts.linear(out, inner, layer, (f"{of}down",), biased)
