"""Importance of weights: the mean square of each input of a matrix.

A quantiser that minimises the error of products on a text, not of weights, weighs each column
by that (the "importance matrix" of llama.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from edgedec.export.gguf.naming import Layout
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec

# Tokens read at once: what attention needs grows with their square.
_TOGETHER = 512


def importance(
    spec: DecoderSpec,
    tensors: TensorReader,
    tokens: Sequence[int],
    layout: Layout,
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> Mapping[str, FloatArray]:
    """Mean squares ``[columns]`` float32 by name in the file, for every matrix that multiplies.

    Args:
        spec: the decoder.
        tensors: its canonical tensors.
        tokens: of a text that is typical for what the model will read.
        layout: which matrix stands where.
        on_layer: hears ``(done, total)``.

    """
    reference = _Listening(spec, tensors)
    length = min(_TOGETHER, spec.max_context)
    texts = [tokens[start : start + length] for start in range(0, len(tokens), length)]
    for number, text in enumerate(texts):
        x = reference.embed(text)
        for layer in range(spec.layers):
            x = reference.layer(layer, x)
            on_layer(number * spec.layers + layer + 1, len(texts) * spec.layers)
        reference.hear("head", 0, reference.final_norm(x))
    means = reference.means()
    found = {}
    for place in layout.places(spec):
        role = place.parts[0][0]
        if role == "embed" and spec.tied:  # looked up by token, and multiplied as the head
            role = "head"
        if place.matrix and (role, place.layer) in means:
            # The quantiser wants an importance for each expert.
            copies = place.shape[0] if len(place.shape) == 3 else 1
            found[place.name] = np.tile(means[role, place.layer].astype(np.float32), copies)
    return found


class _Listening(Reference):
    """A reference that adds up squares of what its matrices are multiplied by."""

    def __init__(self, spec: DecoderSpec, tensors: TensorReader) -> None:
        super().__init__(spec, tensors)
        self._sums: dict[tuple[str, int], npt.NDArray[np.float64]] = {}
        self._counts: dict[tuple[str, int], int] = {}

    def hear(self, role: str, layer: int, x: FloatArray) -> None:
        """Rows ``[n, columns]`` that a matrix is about to multiply."""
        key = role, layer
        squares = np.square(x, dtype=np.float64).sum(axis=0)
        self._sums[key] = self._sums.get(key, np.zeros_like(squares)) + squares
        self._counts[key] = self._counts.get(key, 0) + len(x)

    def means(self) -> dict[tuple[str, int], npt.NDArray[np.float64]]:
        """By role and layer."""
        return {key: total / self._counts[key] for key, total in self._sums.items()}

    def _expert(self, layer: int, expert: int, x: FloatArray) -> FloatArray:
        # All experts of a layer see the same kind of rows, and some see none on a short text.
        self.hear("experts_gate", layer, x)
        self.hear("experts_up", layer, x)
        return super()._expert(layer, expert, x)

    def _linear(self, role: str, layer: int, x: FloatArray, biased: bool) -> FloatArray:
        self.hear(role, layer, x)
        return super()._linear(role, layer, x, biased)
