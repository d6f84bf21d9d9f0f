"""Building blocks of every part of a decoder: products, norms, factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.graph import GraphWriter
from edgedec.export.onnx.options import GraphOptions
from edgedec.export.tensors import FloatArray, TensorReader, read
from edgedec.export.weights import MICROSOFT, Format
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Activation, Experts

# Past the end of any slice.
_END = np.iinfo(np.int64).max
# QuickGelu with alpha 1 is SiLU.
_OPS: dict[Activation, tuple[str, dict[str, float]]] = {
    "silu": ("QuickGelu", {"alpha": 1.0}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("FastGelu", {}),
}


@dataclass(frozen=True, slots=True)
class GraphParts:
    """A graph under construction.

    Attributes:
        spec, tensors: the decoder and its weights.
        graph: collects the nodes.
        store: stores weights and emits their products.
        options: options of the graph.

    """

    spec: DecoderSpec
    tensors: TensorReader
    graph: GraphWriter
    store: Format
    options: GraphOptions

    def linear(self, out: str, x: str, layer: int, roles: tuple[str, ...], bias: bool) -> str:
        """Emit the product with one or more stacked matrices."""
        spec = self.spec
        weights = [spec.name(role, layer) for role in roles]
        biases = [spec.name(f"{role}_bias", layer) for role in roles] if bias else []
        return self.store.linear(x, out, weights, biases)

    def norm(self, out: str, x: str, role: str, layer: int = 0) -> str:
        """Emit the norm of a value of ``hidden`` channels."""
        weights = self._norm_weights(role, layer)
        return self.graph.node(self._norm_op, [x, *weights], out, **self._norm_form)

    def norm_of_sum(
        self, out: str, total: str, x: str, branch: str | None, role: str, layer: int = 0
    ) -> tuple[str, str]:
        """Emit the norm of ``x + branch``, and that sum, named ``total``."""
        g = self.graph
        if not branch:
            g.node("Identity", [x], total)
            return self.norm(out, x, role, layer), total
        g.nodes(
            f"{MICROSOFT}Skip{self._norm_op.replace('Normalization', '')}Normalization",
            [x, branch, *self._norm_weights(role, layer)],
            [out, "", "", total],
            epsilon=self.spec.norm.epsilon,
        )
        return out, total

    def bare_norm(self, out: str, x: str, weight: FloatArray) -> str:
        """Emit the norm over the last axis of ``x``, ``[.., weight.size]``, without a bias."""
        scale = self.graph.constant(f"{out}.weight", weight)
        return self.graph.node(self._norm_op, [x, scale], out, **self._norm_form)

    def head_norm(self, out: str, x: str, heads: int, weight: FloatArray) -> str:
        """Emit ``bare_norm`` of each head, ``[1, n, heads * weight.size]``."""
        g = self.graph
        split = g.node("Reshape", [x, self.dims(1, -1, heads, weight.size)], f"{out}.heads")
        normed = self.bare_norm(f"{out}.norm", split, weight)
        whole = self.dims(1, -1, heads * weight.size)
        return g.node("Reshape", [normed, whole], f"{out}.normed")

    def lent_norm(self, out: str, x: str, weight: TensorProto) -> str:
        """Emit as ``bare_norm`` does, with a weight that another graph stores."""
        self.graph.data.tensors[weight.name] = weight
        return self.graph.node(self._norm_op, [x, weight.name], out, **self._norm_form)

    def add(self, out: str, x: str, y: str) -> str:
        """Emit a sum."""
        return self.graph.node("Add", [x, y], out)

    def same(self, out: str, x: str) -> str:
        """Emit a value under another name."""
        return self.graph.node("Identity", [x], out)

    def multiplied(self, out: str, x: str, y: str) -> str:
        """Emit a product of two values, element by element."""
        return self.graph.node("Mul", [x, y], out)

    def halves(self, x: str, first: str, second: str) -> tuple[str, str]:
        """Emit the two halves of the last axis."""
        self.graph.nodes("Split", [x], [first, second], axis=-1, num_outputs=2)
        return first, second

    def activated(self, out: str, x: str) -> str:
        """Emit the MLP's activation."""
        op, form = _OPS[self.spec.activation]
        return self.graph.node(MICROSOFT + op, [x], out, **form)

    def mixture(self, layer: int, x: str, out: str, shared: str | None) -> str:
        """Emit a mixture of experts; only the experts that the router chooses are computed.

        A pass reads a chosen expert's weights once, but different rows choose different experts:
        four rows of four experts each may read sixteen.
        """
        g, spec = self.graph, self.spec
        kind = spec.experts
        if kind is None or spec.activation != "silu" or not spec.gated:
            raise UnsupportedArchitecture(
                f"experts with {spec.activation}: the kernel has silu only"
            )
        # The router stays in fp32 in every format: it is small and decides which experts run.
        logits = self._routed("router", layer, x, f"{out}.routed")
        logits = self._chosen(layer, logits, kind) if kind.sigmoid else logits
        flat = g.node("Reshape", [logits, self.dims(-1, kind.count)], f"{out}.router")
        weights = [spec.name(f"experts_{role}", layer) for role in ("gate", "up", "down")]
        if shared is None:
            return self.store.mixture(x, flat, out, weights, kind)
        if kind.shared_gated:
            share = self._routed("shared_router", layer, x, f"{out}.shared")
            shared = self.multiplied(
                f"{shared}.part", shared, g.node("Sigmoid", [share], f"{out}.share")
            )
        return self.add(out, self.store.mixture(x, flat, f"{out}.mixed", weights, kind), shared)

    def _chosen(self, layer: int, logits: str, kind: Experts) -> str:
        """Emit logits whose softmax has the sigmoids' shares, of the experts that are chosen."""
        g, name = self.graph, self.spec.name("probs_bias", layer)
        bias = g.constant(name, read(self.tensors, name))
        shares = g.node("Sigmoid", [logits], f"{logits}.shares")
        ranked = g.node("Add", [shares, bias], f"{logits}.ranked")
        count = g.constant(f"experts.{kind.used}", np.array([kind.used], np.int64))
        best = [f"{logits}.best", f"{logits}.indices"]
        g.nodes("TopK", [ranked, count], best, axis=-1, largest=1, sorted=1)
        last = [g.constant(f"last.{at}", np.array([at], np.int64)) for at in (-1, _END)]
        least = g.node("Slice", [best[0], *last, last[0]], f"{logits}.least")
        taken = g.node("GreaterOrEqual", [ranked, least], f"{logits}.taken")
        # The logarithm of a sigmoid, without computing log(0).
        small = g.node("Softplus", [g.node("Neg", [logits], f"{logits}.neg")], f"{logits}.soft")
        powers = g.node("Neg", [small], f"{logits}.log")
        never = g.constant("never", np.array(-1e30, np.float32))
        return g.node("Where", [taken, powers, never], f"{logits}.chosen")

    def _routed(self, role: str, layer: int, x: str, out: str) -> str:
        name = self.spec.name(role, layer)
        router = self.graph.constant(name, read(self.tensors, name))
        return self.graph.node(MICROSOFT + "FusedMatMul", [x, router], out, transB=1)

    def scaled(self, out: str, x: str, factor: float) -> str:
        """Emit ``x`` times a constant."""
        number = self.graph.constant(f"factor.{factor!r}", np.array(factor, np.float32))
        return self.graph.node("Mul", [x, number], out)

    def capped(self, out: str, x: str, cap: float) -> str:
        """Emit ``cap * tanh(x / cap)``."""
        inner = self.scaled(f"{out}.inner", x, 1 / cap)
        return self.scaled(out, self.graph.node("Tanh", [inner], f"{out}.tanh"), cap)

    def dims(self, *dims: int) -> str:
        """Store a shape for Reshape."""
        return self.graph.constant(f"dims.{'x'.join(map(str, dims))}", np.array(dims, np.int64))

    @property
    def _norm_op(self) -> str:
        rms = self.spec.norm.kind == "rms"
        return "SimplifiedLayerNormalization" if rms else "LayerNormalization"

    @property
    def _norm_form(self) -> dict[str, int | float]:
        return {"axis": -1, "epsilon": self.spec.norm.epsilon}

    def _norm_weights(self, role: str, layer: int) -> list[str]:
        """Return weight and, if there is one, bias."""
        roles = [role, f"{role}_bias"] if self.spec.norm.bias else [role]
        # The head multiplies the output of the final norm, so the logits' factor is applied there.
        factor = np.float32(self.spec.scales.logits if role == "final_norm" else 1.0)
        names = [self.spec.name(role, layer) for role in roles]
        return [self.graph.constant(name, read(self.tensors, name) * factor) for name in names]
