"""Measures what int4 costs each matrix of a decoder, in nats per token.

Every layer is rounded by itself: the texts pass through it with all of its matrices in int4, and on
through the source's other layers to the logits, whose divergence from the source's is the layer's
loss. Its matrices share that loss by the error that each of them alone makes in the layer's output.
All these streams go through a layer together, so that each matrix is read and rounded once, and
memory holds one of them at a time. Of a decoder of many layers some are followed to the logits, and
the others' losses follow from their outputs' errors. The sum of losses approximates the loss of all
together while it is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgedec.export.divergence import Divergence
from edgedec.export.parallel import ahead
from edgedec.export.reference import Product, Reference
from edgedec.export.tensors import CHUNK_NUMBERS, FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import SMALL

# Floating-point operations for all streams, less than a minute on two cores; their tokens' limits.
_WORK, _HEAD_WORK = 1.5e12, 5e11
_FEWEST, _MOST = 64, 256
# Texts, and layers that are followed to the logits.
_TEXTS, _FOLLOWED = 4, 16
# Relative squared error of a layer that fp32 itself may make: it says nothing of others' losses.
_NOISE = 1e-12

OnStep = Callable[[int, int], None]
# The source; all of a layer in int4; embedding and head.
_CLEAN, _WHOLE, _TABLE = "clean", "whole", "table"


@dataclass(frozen=True, slots=True)
class Unit:
    """Matrices that are stored in the same number of bits.

    Attributes:
        names: of the matrices.
        numbers: weights in them.
        loss: what int4 adds to the divergence, in nats per token.

    """

    names: tuple[str, ...]
    numbers: int
    loss: float


def units(spec: DecoderSpec, layer: int) -> list[tuple[str, ...]]:
    """Return the names of the matrices of a layer that get the same bits.

    One product reads query and key, or gate and up; a mixture's kernel reads all of its experts.
    """
    fed = ("gate", "up") if spec.gated else ("up",)
    mixed = [role for role in spec.mixer_matrices(layer) if role not in SMALL]
    roles: list[tuple[str, ...]] = [(role,) for role in mixed]
    if mixed[:2] == ["q", "k"] and not spec.gated_attention:
        roles = [("q", "k"), *roles[2:]]
    experts = spec.at(layer).experts
    if experts is None:
        roles += [fed, ("down",)]
    else:
        roles.append(tuple(f"experts_{role}" for role in (*fed, "down")))
        if experts.shared:
            roles += [tuple(f"shared_{role}" for role in fed), ("shared_down",)]
    roles += [(role,) for role in spec.per_layer_matrices]
    return [tuple(spec.name(role, layer) for role in each) for each in roles]


def measure(
    spec: DecoderSpec,
    tensors: TensorReader,
    texts: Sequence[Sequence[int]],
    coarse: TensorReader,
    on_step: OnStep,
) -> list[Unit]:
    """Return the units of all layers, and the head, with their losses.

    That of a head includes what a lookup in it loses, if the embedding is tied to it.

    Args:
        texts: token ids; some are read.
        coarse: the same with all matrices in int4.
        on_step: called with layers done and their number.

    """
    return _Measuring(spec, tensors, coarse).run(_some(spec, texts), on_step)


def _some(spec: DecoderSpec, texts: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the beginnings of some texts, fewer tokens of a larger decoder."""
    streams = len(_followed(spec)) / 2 + len(units(spec, 0)) + 2
    tokens = int(np.clip(_WORK / (2 * spec.parameters * streams), _FEWEST, _MOST))
    chosen = texts[:_TEXTS]
    return [text[: max(tokens // len(chosen), 2)] for text in chosen]


def _followed(spec: DecoderSpec) -> list[int]:
    """Return the layers whose errors are followed to the logits."""
    places = np.linspace(0, spec.layers - 1, min(spec.layers, _FOLLOWED))
    return sorted({round(place) for place in places})


class _Measuring:
    def __init__(self, spec: DecoderSpec, tensors: TensorReader, coarse: TensorReader) -> None:
        self._spec, self._tensors, self._coarse = spec, tensors, coarse
        self._reference = Reference(spec, tensors)
        self._coarse_table = Reference(spec, coarse)

    def run(self, texts: Sequence[Sequence[int]], on_step: OnStep) -> list[Unit]:
        spec, followed = self._spec, set(_followed(self._spec))
        streams = {_CLEAN: [self._reference.embed(text) for text in texts]}
        if spec.tied:
            streams[_TABLE] = [self._coarse_table.embed(text) for text in texts]
        errors: list[list[float]] = []
        for layer in range(spec.layers):
            named = units(spec, layer)
            # Streams that are followed have numbers, those of their layers.
            rounded = {f"unit {number}": frozenset(unit) for number, unit in enumerate(named)}
            rounded[_WHOLE] = frozenset(name for unit in named for name in unit)
            before = streams[_CLEAN]
            after = self._layer(layer, {**streams, **dict.fromkeys(rounded, before)}, rounded)
            clean = after[_CLEAN]
            parts = [after.pop(f"unit {number}") for number in range(len(named))]
            errors.append([_error(clean, part, spec.hidden) for part in parts])
            whole = after.pop(_WHOLE)
            if layer in followed:
                after[f"{layer}"] = whole
            streams = after
            on_step(layer + 1, spec.layers)
        return self._shared(errors, self._divergences(streams, texts))

    def _layer(
        self,
        layer: int,
        streams: Mapping[str, list[FloatArray]],
        rounded: Mapping[str, frozenset[str]],
    ) -> dict[str, list[FloatArray]]:
        """Return all streams after a layer; some read matrices of it in int4."""
        keys = [key for key, texts in streams.items() for _ in texts]
        running = [self._reference.steps(layer, x) for texts in streams.values() for x in texts]
        coarse = [rounded.get(key, frozenset()) for key in keys]
        found: dict[str, list[FloatArray]] = {key: [] for key in streams}
        asked = list(ahead(next, running))
        while asked:
            products = self._products(asked, coarse)

            def send(
                index: int, products: list[list[FloatArray]] = products
            ) -> tuple[Product, ...] | FloatArray:
                try:
                    return running[index].send(products[index])
                except StopIteration as done:
                    after: FloatArray = done.value
                    return after

            asked = []
            for key, got in zip(keys, ahead(send, range(len(running))), strict=True):
                if isinstance(got, tuple):
                    asked.append(got)
                else:
                    found[key].append(got)
        return found

    def _products(
        self, asked: Sequence[tuple[Product, ...]], coarse: Sequence[frozenset[str]]
    ) -> list[list[FloatArray]]:
        """Return the products that each stream asks for; all ask for the same matrices."""
        found: list[list[FloatArray]] = [[] for _ in asked]
        for number, (name, start, stop, _) in enumerate(asked[0]):
            exact = self._tensors.rows(name, start, stop)
            matrices = (exact, self._coarse.rows(name, start, stop))
            groups = [[], []]  # type: list[list[int]]
            for index, names in enumerate(coarse):
                groups[name in names].append(index)
            for chosen, matrix in zip(groups, matrices, strict=True):
                if not chosen:
                    continue
                inputs = [asked[index][number].x for index in chosen]
                out = np.concatenate(inputs) @ matrix.T
                ends = np.cumsum([len(x) for x in inputs])[:-1]
                for index, part in zip(chosen, np.split(out, ends), strict=True):
                    found[index].append(part)
        return found

    def _divergences(
        self, streams: Mapping[str, list[FloatArray]], texts: Sequence[Sequence[int]]
    ) -> dict[str, float]:
        """Return the divergence of each stream from the clean one at the logits."""
        spec = self._spec
        step = max(CHUNK_NUMBERS // max(spec.hidden, sum(map(len, texts))), 1)
        work = 2.0 * spec.hidden * spec.vocab_used * len(streams)
        thin = max(int(sum(map(len, texts)) * work / _HEAD_WORK), 1)
        ends = {
            key: self._reference.final_norm(np.concatenate(found)[::thin])
            for key, found in streams.items()
        }
        clean = ends.pop(_CLEAN)
        ends.setdefault(_TABLE, clean)
        # Of the divergence alone: the text's own tokens are not looked at.
        sums = {key: Divergence([0] * (len(clean) + 1)) for key in ends}
        for start in range(0, spec.vocab_used, step):
            stop = min(start + step, spec.vocab_used)
            expected = self._reference.head(clean, start, stop)
            for key, divergence in sums.items():
                read = self._coarse_table if key == _TABLE else self._reference
                divergence.add(expected, read.head(ends[key], start, stop), start)
        return {key: one.result(0.0).kl_nats for key, one in sums.items()}

    def _shared(self, errors: list[list[float]], losses: dict[str, float]) -> list[Unit]:
        """Share each layer's loss among its units by their errors."""
        head = (self._spec.name("head"),)
        found = [Unit(head, self._numbers(head), losses.pop(_TABLE))]
        layers = [layer for layer in sorted(map(int, losses)) if sum(errors[layer]) > _NOISE]
        ratios = [losses[str(layer)] / sum(errors[layer]) for layer in layers]
        for layer, own in enumerate(errors):
            ratio = float(np.interp(layer, layers, ratios)) if layers else 0.0
            for names, error in zip(units(self._spec, layer), own, strict=True):
                found.append(Unit(names, self._numbers(names), ratio * error))
        return found

    def _numbers(self, names: Sequence[str]) -> int:
        return sum(int(np.prod(self._tensors.shape(name))) for name in names)


def _error(clean: Sequence[FloatArray], got: Sequence[FloatArray], hidden: int) -> float:
    """Return the mean squared error of a token's residual stream, relative to its own square."""
    source, rounded = (np.concatenate(rows)[:, :hidden] for rows in (clean, got))
    lost, whole = np.square(source - rounded).sum(axis=1), np.square(source).sum(axis=1)
    return float((lost / np.maximum(whole, 1e-30)).mean())
