"""Building blocks of standard operators; values have the shape ``[n, channels]``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import FloatArray

_APPROXIMATIONS = {"gelu": "none", "gelu_tanh": "tanh"}


@dataclass(frozen=True, slots=True)
class StaticParts(GraphParts):
    """One graph of static shape under construction; see ``edgedec.export.flow.Parts``.

    Attributes:
        rows: tokens that it computes.
        slots: tokens that its cache holds.

    """

    rows: int
    slots: int

    def norm(self, out: str, x: str, role: str, layer: int = 0) -> str:
        return self._normed(out, x, self._norm_weights(role, layer))

    def norm_of_sum(
        self, out: str, total: str, x: str, branch: str | None, role: str, layer: int = 0
    ) -> tuple[str, str]:
        summed = self.add(total, x, branch) if branch else self.same(total, x)
        return self.norm(out, summed, role, layer), summed

    def bare_norm(self, out: str, x: str, weight: FloatArray) -> str:
        """Emit the norm over the last axis of ``x``, without a bias."""
        stored = self.graph.constant(f"{out}.weight", weight)
        if self.spec.norm.kind == "rms" or weight.ndim == 1:
            return self._normed(out, x, [stored])
        # The operator supports a weight of the last axis only.
        one = self.graph.constant(f"{out}.ones", np.ones(weight.shape[-1], np.float32))
        return self.multiplied(out, self._normed(f"{out}.even", x, [one]), stored)

    def _normed(self, out: str, x: str, weights: list[str]) -> str:
        """Emit a norm with one weight or two."""
        g, norm = self.graph, self.spec.norm
        if norm.kind == "layer":
            return g.node("LayerNormalization", [x, *weights], out, **self._norm_form)
        last = g.constant("axis.last", np.array([-1], np.int64))
        epsilon = g.constant("epsilon", np.array(norm.epsilon, np.float32))
        # Not with Pow, which Qualcomm's NPU computes incorrectly if it is not fused with the rest.
        squares = g.node("Mul", [x, x], f"{out}.squares")
        mean = g.node("ReduceMean", [squares, last], f"{out}.mean", keepdims=1)
        root = g.node("Sqrt", [g.node("Add", [mean, epsilon], f"{out}.shifted")], f"{out}.root")
        even = g.node("Div", [x, root], f"{out}.even")
        for op, weight in zip(("Mul", "Add"), weights, strict=False):
            name = out if weight == weights[-1] else f"{out}.scaled"
            even = g.node(op, [even, weight], name)
        return even

    def activated(self, out: str, x: str) -> str:
        approximation = _APPROXIMATIONS.get(self.spec.activation)
        if approximation is not None:
            return self.graph.node("Gelu", [x], out, approximate=approximation)
        return self.graph.node("Mul", [x, self.graph.node("Sigmoid", [x], f"{out}.gate")], out)
