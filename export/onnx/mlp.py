"""The MLP of a layer."""

from __future__ import annotations

from edgedec.export.onnx.parts import Parts
from edgedec.export.weights import MICROSOFT
from edgedec.models.traits import Activation

# QuickGelu with alpha 1 is SiLU.
_OPS: dict[Activation, tuple[str, dict[str, float]]] = {
    "silu": ("QuickGelu", {"alpha": 1.0}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("FastGelu", {}),
}


def mlp(parts: Parts, layer: int, x: str, out: str) -> str:
    """``down(act(gate(x)) * up(x))``, or ``down(act(up(x)))`` where there is no gate."""
    g, spec, at = parts.graph, parts.spec, f"layers.{layer}"
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
