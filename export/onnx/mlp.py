"""Emits the activation of an MLP, and the mixture of experts in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.graph import GraphWriter
from edgedec.export.tensors import read
from edgedec.export.weights import MICROSOFT
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Activation

if TYPE_CHECKING:
    from edgedec.export.onnx.parts import GraphParts

# QuickGelu with alpha 1 is SiLU.
_OPS: dict[Activation, tuple[str, dict[str, float]]] = {
    "silu": ("QuickGelu", {"alpha": 1.0}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("FastGelu", {}),
}


def activated(graph: GraphWriter, spec: DecoderSpec, out: str, x: str) -> str:
    """Emit the MLP's activation."""
    op, form = _OPS[spec.activation]
    return graph.node(MICROSOFT + op, [x], out, **form)


def mixture(parts: GraphParts, layer: int, x: str, out: str) -> str:
    """Emit a mixture of experts, of which only those that the router chooses are computed.

    A pass reads a chosen expert's weights once, but rows of different tokens choose different
    experts: four rows of four experts each may read sixteen.
    """
    g, spec = parts.graph, parts.spec
    kind = spec.experts
    if kind is None or spec.activation != "silu" or not spec.gated:
        raise UnsupportedArchitecture(f"experts with {spec.activation}: the kernel has silu only")
    # The router stays in fp32 in every format: it is small and decides which experts run.
    name = spec.name("router", layer)
    router = g.constant(name, read(parts.tensors, name))
    logits = g.node(MICROSOFT + "FusedMatMul", [x, router], f"{out}.routed", transB=1)
    flat = g.node("Reshape", [logits, parts.dims(-1, kind.count)], f"{out}.router")
    weights = [spec.name(f"experts_{role}", layer) for role in ("gate", "up", "down")]
    return parts.store.mixture(x, flat, out, weights, kind)
