"""The weights of a sparse mixture as ONNX Runtime's kernels (MoE, QMoE) want them."""

from __future__ import annotations

from collections.abc import Sequence

import onnxruntime

from edgedec.errors import RuntimeUnavailable
from edgedec.export.tensors import InterleavedTensors, TensorReader
from edgedec.models.traits import Experts

# Found by trying older versions: QMoE takes activations in int8 since then, several times faster.
_QUANTIZED_SINCE = (1, 31)


def check_quantized() -> None:
    """Check that the installed onnxruntime computes with quantised experts.

    Raises:
        RuntimeUnavailable: it does not.

    """
    version = onnxruntime.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _QUANTIZED_SINCE:
        raise RuntimeUnavailable(
            f"quantised experts need onnxruntime 1.31 or newer, this is {version}:"
            " upgrade it, or use --weights fp16"
        )


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
