"""Rounds matrices to blocks of small integers: each weight by itself, or for a matrix's inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from edgedec.export.gptq import Gram, round_rows
from edgedec.export.parallel import ahead
from edgedec.export.quantize import Blocks, dequantize, quantize
from edgedec.export.reference import Product, Reference, Steps
from edgedec.export.tensors import FloatArray, TensorReader, chunks
from edgedec.models.decoder import DecoderSpec


class Rounding(Protocol):
    """Quantises the matrices of a decoder, in the order in which data flows through them."""

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """The rows of several matrices, one under the other, in parts."""
        ...

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """The same of the head, after all others."""
        ...


class PlainRounding:
    """Each block by itself, with the scale of least squared error."""

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """See ``Rounding``."""
        return ahead(lambda part: quantize(part, bits, block_size), chunks(tensors, names))

    head = blocks


class CalibratedRounding:
    """Each matrix for the inputs that texts bring it, once all before it is quantised.

    The texts go through the decoder layer by layer: at each matrix its inputs from all texts
    are summed up (``Gram``), it is rounded for them, and they go on through what it became.
    In memory are, for all texts, the residual stream and the widest of a layer's values, and one
    matrix with its sum. Experts and embeddings, and so a head that is one, are rounded plainly.

    Args:
        spec: the decoder.
        tensors: its weights.
        texts: token ids; some 8,000 in all are enough.
        bits, block_size: of the layers' matrices.
        on_layer: hears of layers done, and of how many.

    Attributes:
        notes: matrices that could not be calibrated, a line each.

    """

    def __init__(
        self,
        spec: DecoderSpec,
        tensors: TensorReader,
        texts: Sequence[Sequence[int]],
        bits: int,
        block_size: int,
        on_layer: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.notes: list[str] = []
        self._failed = ""
        self._spec, self._tensors = spec, tensors
        self._bits, self._block_size = bits, block_size
        self._plain, self._reference = PlainRounding(), Reference(spec, tensors)
        self._streams = [self._reference.embed(text) for text in texts]
        self._ready: dict[str, Blocks] = {}
        self._on_layer, self._taken = on_layer, 0
        self._work = self._layers()
        self._names = {
            spec.name(role, layer) for layer in range(spec.layers) for role in _roles(spec)
        }

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """See ``Rounding``."""
        for name in names:
            if name in self._names:
                while name not in self._ready:
                    next(self._work)
                self._told()
                yield self._ready.pop(name)
            else:
                yield from self._plain.blocks(tensors, [name], bits, block_size)

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        """See ``Rounding``."""
        for _ in self._work:
            pass  # the texts reach the head
        name, inputs = names[0], list(ahead(self._reference.final_norm, self._streams))
        return self._parts(tensors, name, self._factor(name, inputs), bits, block_size)

    def _told(self) -> None:
        self._taken += 1
        layers, rest = divmod(self._taken, len(_roles(self._spec)))
        if not rest:
            self._on_layer(layers, self._spec.layers)

    def _layers(self) -> Iterator[None]:
        """Go through the layers; pauses after each matrix."""
        for layer in range(self._spec.layers):
            yield from self._layer(layer)

    def _layer(self, layer: int) -> Iterator[None]:
        """All texts in step: each waits at a matrix until it is rounded for all."""
        running = [self._answered(self._reference.steps(layer, x)) for x in self._streams]
        asked = list(ahead(next, running))
        seen: FloatArray | None = None
        factor: FloatArray | None = None
        while asked:
            name = asked[0].name
            if asked[0].x is not seen:  # q, k and v are fed the same
                seen, factor = asked[0].x, self._factor(name, [each.x for each in asked])
            elif factor is None:
                self.notes.append(f"{name} is rounded without calibration, as {self._failed}")
            parts = self._parts(self._tensors, name, factor, self._bits, self._block_size)
            self._ready[name] = blocks = _joined(list(parts))
            yield
            columns = self._tensors.shape(name)[1]
            matrix = dequantize(blocks.packed, blocks.scales, self._bits, columns).T
            asked = self._sent(running, asked, matrix)

    def _sent(
        self, running: Sequence[Steps], asked: Sequence[Product], matrix: FloatArray
    ) -> list[Product]:
        """Give every text its product; what they ask for next, or nothing at a layer's end."""

        def send(place: int) -> Product | None:
            # A few texts' products at a time: those of all are as large as all that is kept.
            try:
                return running[place].send(asked[place].x @ matrix)
            except StopIteration as done:
                self._streams[place] = done.value
                return None

        return [product for product in ahead(send, range(len(running))) if product is not None]

    def _answered(self, steps: Steps) -> Steps:
        """The same steps, with the products answered that are not calibrated."""
        asked = next(steps)
        try:
            while True:
                if asked.name in self._names:
                    product = yield asked
                else:
                    product = asked.x @ self._tensors.rows(*asked[:3]).T
                asked = steps.send(product)
        except StopIteration as done:
            after: FloatArray = done.value
            return after

    def _factor(self, name: str, inputs: Sequence[FloatArray]) -> FloatArray | None:
        gram = Gram(inputs[0].shape[1])
        gram.add(inputs)
        try:
            return gram.factor()
        except np.linalg.LinAlgError as error:
            self._failed = name
            self.notes.append(f"{name} is rounded without calibration: {error}")
            return None

    def _parts(
        self,
        tensors: TensorReader,
        name: str,
        factor: FloatArray | None,
        bits: int,
        block_size: int,
    ) -> Iterator[Blocks]:
        if factor is None:
            return self._plain.blocks(tensors, [name], bits, block_size)
        return ahead(
            lambda part: round_rows(part, factor, bits, block_size), chunks(tensors, [name])
        )


def _joined(parts: Sequence[Blocks]) -> Blocks:
    return Blocks(
        np.concatenate([part.packed for part in parts]),
        np.concatenate([part.scales for part in parts]),
        sum(part.squared_error for part in parts),
        sum(part.squared_weight for part in parts),
    )


def _roles(spec: DecoderSpec) -> tuple[str, ...]:
    """Matrices of a layer that are calibrated."""
    if spec.experts is not None:
        return ("q", "k", "v", "o")
    return ("q", "k", "v", "o", "up", "down", *(("gate",) if spec.gated else ()))
