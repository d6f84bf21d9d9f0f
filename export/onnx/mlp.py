"""Emits a layer's MLP, or the mixture of experts in its place."""

from __future__ import annotations

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.onnx.parts import GraphParts
from edgedec.export.tensors import read
from edgedec.export.weights import MICROSOFT
from edgedec.models.traits import Activation, Experts

# QuickGelu with alpha 1 is SiLU.
_OPS: dict[Activation, tuple[str, dict[str, float]]] = {
    "silu": ("QuickGelu", {"alpha": 1.0}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("FastGelu", {}),
}


def mlp(parts: GraphParts, layer: int, x: str, out: str) -> str:
    """Emit ``down(act(gate(x)) * up(x))``, or ``down(act(up(x)))`` without a gate."""
    g, spec, at = parts.graph, parts.spec, f"layers.{layer}"
    if spec.experts is not None:
        return _mixture(parts, spec.experts, layer, x, out)
    op, form = _OPS[spec.activation]
    if not spec.gated:
        up = parts.linear(f"{at}.up", x, layer, ("up",), spec.mlp_bias)
        active = g.node(MICROSOFT + op, [up], f"{at}.active", **form)
        return parts.linear(out, active, layer, ("down",), spec.mlp_bias)
    both = parts.linear(f"{at}.gate_up", x, layer, ("gate", "up"), spec.mlp_bias)
    gate, up = g.nodes("Split", [both], [f"{at}.gate", f"{at}.up"], axis=-1, num_outputs=2)
    active = g.node(MICROSOFT + op, [gate], f"{at}.active", **form)
    product = g.node("Mul", [active, up], f"{at}.gated")
    return parts.linear(out, product, layer, ("down",), spec.mlp_bias)


def _mixture(parts: GraphParts, kind: Experts, layer: int, x: str, out: str) -> str:
    """Emit a mixture of experts, of which only those that the router chooses are computed.

    A pass reads a chosen expert's weights once, but rows of different tokens choose different
    experts: four rows of four experts each may read sixteen.
    """
    g, spec = parts.graph, parts.spec
    if spec.activation != "silu" or not spec.gated:
        raise UnsupportedArchitecture(f"experts with {spec.activation}: the kernel has silu only")
    # The router stays in fp32 in every format: it is small and decides which experts run.
    name = spec.name("router", layer)
    router = g.constant(name, read(parts.tensors, name))
    logits = g.node(MICROSOFT + "FusedMatMul", [x, router], f"{out}.routed", transB=1)
    flat = g.node("Reshape", [logits, parts.dims(-1, kind.count)], f"{out}.router")
    weights = [spec.name(f"experts_{role}", layer) for role in ("gate", "up", "down")]
    return parts.store.mixture(x, flat, out, weights, kind)
