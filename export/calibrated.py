"""Calibrated rounding: rounds each matrix for the inputs that it gets from texts."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edgedec.export.gptq import Gram, round_rows
from edgedec.export.job import ExportJob
from edgedec.export.options import Progress
from edgedec.export.parallel import Step, ahead, in_step
from edgedec.export.quantize import Blocks, PlainRounding, dequantize, quantize
from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import FloatArray, TensorReader, row_chunks
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import SMALL

# Numbers that a thread rounds at a time, so that most matrices keep several threads busy.
_ROUNDED = 1 << 21


class CalibratedRounding:
    """Rounds each matrix for its inputs after all matrices before it have been quantised.

    The texts pass through the decoder layer by layer. Matrices with the same input are rounded
    together: the inputs of all texts are accumulated (``Gram``), the matrices are rounded for them,
    and the texts continue through the rounded ones. Memory holds the residual streams of all texts,
    the widest activations of a layer, and one Gram matrix. An expert is rounded for the tokens that
    the router sends it. Embeddings, and a head that is tied to one, are rounded to nearest.

    Args:
        texts: token ids; about 8,000 in all are enough.
        bits, block_size: of the layers' matrices.
        on_layer: called with layers done and the number of layers.

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
        self._spec, self._tensors = spec, tensors
        self._bits, self._block_size = bits, block_size
        self._plain, self._reference = PlainRounding(), Reference(spec, tensors)
        self._streams = [self._reference.embed(text) for text in texts]
        self._ready: dict[str, list[Blocks]] = {}
        self._rows: Counter[str] = Counter()  # of a matrix that are rounded
        self._failed: dict[str, str] = {}
        self._unreached = 0  # experts
        self._on_layer, self._taken = on_layer, 0
        self._ends = list(
            itertools.accumulate(len(_roles(spec, layer)) for layer in range(spec.layers))
        )
        self._work = self._layers()
        self._names = {
            spec.name(role, layer) for layer in range(spec.layers) for role in _roles(spec, layer)
        }

    @property
    def notes(self) -> list[str]:
        """Lines about matrices that could not be calibrated."""
        notes = [
            f"{name} is rounded without calibration: {why}" for name, why in self._failed.items()
        ]
        experts = self._spec.experts
        if self._unreached and experts is not None:
            every = experts.count * (self._spec.layers - experts.dense_layers)
            notes.append(
                f"{self._unreached} of {every} experts rounded without calibration: no token of the"
                " texts reached them"
            )
        return notes

    def blocks(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        for name in names:
            if name in self._names:
                while self._rows[name] < self._tensors.shape(name)[0]:
                    next(self._work)
                self._report()
                yield from self._ready.pop(name)
            else:
                yield from self._plain.blocks(tensors, [name], bits, block_size)

    def head(
        self, tensors: TensorReader, names: Sequence[str], bits: int, block_size: int
    ) -> Iterator[Blocks]:
        for _ in self._work:
            pass  # the texts reach the head
        name, inputs = names[0], list(ahead(self._reference.final_norm, self._streams))
        factor = self._factor(names, inputs)
        parts = row_chunks(tensors, name, 0, tensors.shape(name)[0], _ROUNDED)
        return ahead(lambda part: _rounded(part, factor, bits, block_size), parts)

    def _report(self) -> None:
        self._taken += 1
        if self._taken in self._ends:
            self._on_layer(self._ends.index(self._taken) + 1, self._spec.layers)

    def _layers(self) -> Iterator[None]:
        """Go through the layers; pauses after each rounding."""
        for layer in range(self._spec.layers):
            yield from self._layer(layer)

    def _layer(self, layer: int) -> Iterator[None]:
        """Run all texts in step: each waits at its products until their matrices are rounded."""
        texts = in_step(self._reference, layer, self._streams)
        asked = next(texts)
        try:
            while True:
                rounded = self._rounded(asked[0], self._factor_of(layer, asked))
                yield
                columns = asked[0][0].x.shape[1]
                asked = texts.send([self._dense(each, columns) for each in rounded])
        except StopIteration as done:
            self._streams = done.value

    def _factor_of(self, layer: int, asked: Step) -> FloatArray | None:
        wanted, inputs = asked[0], [each[0].x for each in asked]
        if any(map(len, inputs)):
            return self._factor([each.name for each in wanted], inputs)
        self._unreached += wanted[0].name == self._spec.name("experts_up", layer)
        return None

    def _dense(self, blocks: Blocks, columns: int) -> FloatArray:
        dense: FloatArray = dequantize(blocks.packed, blocks.scales, self._bits, columns).T
        return dense

    def _rounded(self, wanted: Sequence[Product], factor: FloatArray | None) -> list[Blocks]:
        """Round matrices, or an expert's rows of them, and keep them until they are written."""
        read = (
            (index, part)
            for index, (name, start, stop, _) in enumerate(wanted)
            for part in row_chunks(self._tensors, name, start, stop, _ROUNDED)
        )

        def work(item: tuple[int, FloatArray]) -> tuple[int, Blocks]:
            return item[0], _rounded(item[1], factor, self._bits, self._block_size)

        found: list[list[Blocks]] = [[] for _ in wanted]
        for index, blocks in ahead(work, read):
            found[index].append(blocks)
        whole = [_joined(parts) for parts in found]
        for (name, start, stop, _), blocks in zip(wanted, whole, strict=True):
            self._ready.setdefault(name, []).append(blocks)
            self._rows[name] += stop - start
        return whole

    def _factor(self, names: Sequence[str], inputs: Sequence[FloatArray]) -> FloatArray | None:
        gram = Gram(inputs[0].shape[1])
        gram.add(inputs)
        try:
            return gram.factor()
        except np.linalg.LinAlgError as error:
            self._failed |= dict.fromkeys(names, str(error))
            return None


def _rounded(rows: FloatArray, factor: FloatArray | None, bits: int, block_size: int) -> Blocks:
    if factor is None:
        return quantize(rows, bits, block_size)
    return round_rows(rows, factor, bits, block_size)


def _joined(parts: Sequence[Blocks]) -> Blocks:
    return Blocks(
        np.concatenate([part.packed for part in parts]),
        np.concatenate([part.scales for part in parts]),
        sum(part.squared_error for part in parts),
        sum(part.squared_weight for part in parts),
    )


def _roles(spec: DecoderSpec, layer: int) -> tuple[str, ...]:
    """Return the roles of a layer's matrices that are calibrated."""
    fed, experts = ("up", "down", *(("gate",) if spec.gated else ())), spec.at(layer).experts
    if experts is not None:
        beside = tuple(f"shared_{role}" for role in fed if experts.shared)
        fed = (*(f"experts_{role}" for role in fed), *beside)
    mixed = (role for role in spec.mixer_matrices(layer) if role not in SMALL)
    return (*mixed, *fed, *spec.per_layer_matrices)


def of_job(
    job: ExportJob, spec: DecoderSpec, tensors: TensorReader, bits: int, progress: Progress
) -> CalibratedRounding | None:
    """Return the rounding for a job's texts; None if it has none."""
    if not job.texts:
        return None
    stage = f"{job.stage} calibration"
    return CalibratedRounding(
        spec,
        tensors,
        job.texts,
        bits,
        job.block_size,
        lambda done, layers: progress(stage, done, layers),
    )
