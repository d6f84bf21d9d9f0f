"""Importance of weights: the mean square of each input of a matrix.

A quantiser that minimises the error of a text's products rather than of the weights uses it to
weight columns (the "importance matrix" of llama.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgedec.export.gguf.naming import Layout
from edgedec.export.gguf.pieces import columns, exchanged
from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec

# Tokens read at once; the memory of attention grows with their square.
_TOGETHER = 512


def importance(
    spec: DecoderSpec,
    tensors: TensorReader,
    tokens: Sequence[int],
    layout: Layout,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> Mapping[str, FloatArray]:
    """Return mean squares ``[columns]`` float32 by name in the file, for every matrix.

    The tokens should be typical of the model's input.
    """
    reference, squares = Reference(spec, tensors), _Squares()
    length = min(_TOGETHER, spec.max_context)
    texts = [tokens[start : start + length] for start in range(0, len(tokens), length)]
    for number, text in enumerate(texts):
        x = reference.embed(text)
        for layer in range(spec.layers):
            x = reference.layer(layer, x, squares.add)
            on_layer(number * spec.layers + layer + 1, len(texts) * spec.layers)
        squares.add(Product(spec.name("head"), 0, 0, reference.final_norm(x)))
    means = squares.means()
    found = {}
    for place in layout.places(spec):
        role = place.parts[0][0]
        if role == "embed" and spec.tied:  # looked up by token, and multiplied as the head
            role = "head"
        mean = means.get(spec.name(role, place.layer))
        if place.matrix and mean is not None:
            # The quantiser reads an importance for each expert.
            copies = place.shape[0] if len(place.shape) == 3 else 1
            mean = exchanged(mean[None], columns(spec, role, place.layer))[0]
            found[place.name] = np.tile(mean.astype(np.float32), copies)
    return found


class _Squares:
    """Mean squares of the inputs of matrices."""

    def __init__(self) -> None:
        self._sums: dict[str, npt.NDArray[np.float64]] = {}
        self._counts: dict[str, int] = {}

    def add(self, product: Product) -> None:
        """Add the rows ``[n, columns]`` that a matrix is about to multiply."""
        name, squares = product.name, np.square(product.x, dtype=np.float64).sum(axis=0)
        self._sums[name] = self._sums.get(name, np.zeros_like(squares)) + squares
        self._counts[name] = self._counts.get(name, 0) + len(product.x)

    def means(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return them by name of the matrix; all experts of a layer share one."""
        return {name: total / self._counts[name] for name, total in self._sums.items()}
