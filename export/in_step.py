"""Takes several texts through a layer in step, so that each matrix is read once for all."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from edgedec.export.parallel import ahead
from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import FloatArray

# Yields the products that each text asks for (the same ones, each with the text's own input), is
# sent the matrices transposed, ``[in, out]``, and returns the residual streams after the layer.
Step = list[tuple[Product, ...]]
InStep = Generator[Step, Sequence[FloatArray], list[FloatArray]]


def in_step(reference: Reference, layer: int, streams: list[FloatArray]) -> InStep:
    """Run a layer over residual streams; empties their list, since all of them may be large."""
    running = [reference.steps(layer, x) for x in streams]
    streams.clear()
    after = [np.empty(0, np.float32)] * len(running)
    asked = list(ahead(next, running))
    while asked:
        matrices = yield asked

        def send(
            place: int, asked: Step = asked, matrices: Sequence[FloatArray] = matrices
        ) -> tuple[Product, ...]:
            # A few texts' products at a time: those of all are as large as all that is kept.
            x = asked[place][0].x
            try:
                return running[place].send([x @ matrix for matrix in matrices])
            except StopIteration as done:
                after[place] = done.value
                return ()

        asked = [products for products in ahead(send, range(len(running))) if products]
        del send, matrices
    return after
