"""The weights of a sparse mixture as ONNX Runtime's kernels (MoE, QMoE) want them."""

from __future__ import annotations

from collections.abc import Sequence

from edgedec.export.tensors import InterleavedTensors, TensorReader
from edgedec.models.traits import Experts


def joined(
    tensors: TensorReader, out: str, weights: Sequence[str]
) -> list[tuple[str, TensorReader]]:
    """The two matrices of a mixture as its kernel wants them: gate with up, and down."""
    gate, up, down = weights
    return [(f"{out}.gate_up", InterleavedTensors(tensors, gate, up)), (down, tensors)]


def stacked(shape: Sequence[int], kind: Experts) -> tuple[int, int, int]:
    """The shape of experts side by side, from that of experts one under the other."""
    return kind.count, shape[0] // kind.count, shape[1]


def kernel_form(kind: Experts, renormalised: bool = True) -> dict[str, str | int | float]:
    """Attributes of the kernels: swiglu with alpha 1 and beta 0 is ``silu(gate) * up``."""
    return {
        "k": kind.used,
        "normalize_routing_weights": int(renormalised),
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": 1.0,
        "activation_beta": 0.0,
    }
