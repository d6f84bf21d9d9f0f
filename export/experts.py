"""Lays out the weights of a mixture of experts for ONNX Runtime's kernels (MoE, QMoE)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgedec.export.quantize import Blocks
from edgedec.export.tensors import InterleavedTensors, TensorReader
from edgedec.models.traits import Experts


def joined(
    tensors: TensorReader, out: str, weights: Sequence[str]
) -> list[tuple[str, TensorReader]]:
    """Return the kernel's two matrices of a mixture: gate and up interleaved, and down."""
    gate, up, down = weights
    return [(f"{out}.gate_up", InterleavedTensors(tensors, gate, up)), (down, tensors)]


def interleaved(parts: Sequence[Blocks]) -> Iterator[Blocks]:
    """Interleave the rows of two matrices: ``parts`` are those of one, then of the other."""
    half = len(parts) // 2
    for first, second in zip(parts[:half], parts[half:], strict=True):
        packed = np.stack((first.packed, second.packed), axis=1)
        scales = np.stack((first.scales, second.scales), axis=1)
        yield Blocks(
            packed.reshape(-1, *first.packed.shape[1:]),
            scales.reshape(-1, first.scales.shape[1]),
            first.squared_error + second.squared_error,
            first.squared_weight + second.squared_weight,
        )


def stacked(shape: Sequence[int], kind: Experts) -> tuple[int, int, int]:
    """Return ``[experts, rows, columns]`` from the shape of experts stacked by rows."""
    return kind.count, shape[0] // kind.count, shape[1]


def kernel_form(kind: Experts, renormalised: bool = True) -> dict[str, str | int | float]:
    """Return attributes of the kernels: swiglu with alpha 1 and beta 0 is ``silu(gate) * up``."""
    return {
        "k": kind.used,
        "normalize_routing_weights": int(renormalised),
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": 1.0,
        "activation_beta": 0.0,
    }
