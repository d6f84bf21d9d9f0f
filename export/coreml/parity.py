"""Compares a saved program with its source, through the interpreter.

The logits of the saved file, in exact mode, are compared with the checkpoint's. In addition each
layer is compared with the reference over the stored weights, where any difference beyond float32
rounding is a bug of the emitter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.coreml import Package
from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter
from edgedec.coreml.program import Operation
from edgedec.coreml.types import Array
from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.export.coreml.parts import identifier
from edgedec.export.divergence import OnStep, ParityFigures, check_layer, compare_model
from edgedec.export.reference import Reference
from edgedec.export.tensors import FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.runtimes._static.executor import Feeds
from edgedec.runtimes.coreml.executor import ReferenceExecutor
from edgedec.runtimes.coreml.model import CoremlModel


class StoredTensors:
    """Reads canonical tensors from a package, with norms as the program stores them."""

    def __init__(self, spec: DecoderSpec, package: Package, constants: Constants) -> None:
        self._constants = constants
        self._operations = {
            operation.outputs[0][0]: operation
            for operation in package.function("logits_1").operations
            if operation.outputs
        }
        self._shapes = spec.tensors()
        # For each tensor, the stored tensor that contains it and the index of its first row there.
        self._places = {name: (identifier(f"w.{name}"), 0) for name in self._shapes}
        for names in _stacks(spec):
            begin = 0
            for name in names:
                self._places[name] = identifier(f"w.{'+'.join(names)}"), begin
                begin += self._shapes[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        stored, begin = self._places[name]
        operation: Operation = self._operations[stored]
        whole = self._constants.of(operation)
        assert not isinstance(whole, str)
        count = self._shapes[name][0]
        flat = whole.reshape(-1) if len(self._shapes[name]) == 1 else whole
        found: FloatArray = flat[begin : begin + count][start:stop].astype(np.float32)
        return found


def _stacks(spec: DecoderSpec) -> Iterator[list[str]]:
    """Yield the tensors that are stored together."""
    for layer in range(spec.layers):
        groups = [("q", "k", "v"), *([("gate", "up")] if spec.gated else [])]
        for roles in groups:
            yield [spec.name(role, layer) for role in roles]
            biased = spec.qkv_bias if roles[0] == "q" else spec.mlp_bias
            if biased:
                yield [spec.name(f"{role}_bias", layer) for role in roles]


def as_stored(spec: DecoderSpec, form: str) -> DecoderSpec:
    """Return the decoder with its constants as a program has them, mostly in fp16."""

    def half(value: float) -> float:
        return float(np.float16(value))

    root = float(np.sqrt(spec.head_dim))
    scale = spec.attention_scale
    plain = form == "slice" and not spec.scales.attention_cap
    scales = dataclasses.replace(
        spec.scales,
        embed=half(spec.scales.embed),
        attention=half(scale * root) / root if plain else half(scale),
        residual=half(spec.scales.residual),
        logits=1.0,  # included in the final norm's weight
    )
    norm = spec.norm
    if form == "blend":
        norm = dataclasses.replace(norm, epsilon=half(norm.epsilon))
    return dataclasses.replace(spec, scales=scales, norm=norm)


# Values whose sum is the residual stream.
PARTS = ("stream", "branch")
# Difference of a layer's output relative to what it adds.
LAYER_FLOOR = 1e-4
# Bytes of dense weights kept in memory; those of a larger program are computed for each pass.
_KEPT_BYTES = 512 << 20
# Tokens that are compared if every pass computes the weights again.
_FEW_TOKENS = 64


def compare(
    spec: DecoderSpec, tensors: TensorReader, folder: Path, tokens: Sequence[int], on_step: OnStep
) -> ParityFigures:
    """Compare a package with its source on a text.

    Raises:
        ParityError: a layer of the program does not compute what the reference does.

    """
    package = Package.open(folder)
    if 4 * spec.parameters > _KEPT_BYTES:
        tokens = tokens[:_FEW_TOKENS]
    constants = Constants(package, exact=True, most=_KEPT_BYTES)
    executor = Tapped(spec, constants)
    model = CoremlModel(package, executor)
    divergence = compare_model(model, spec, tensors, tokens, on_step)
    if not executor.found:  # the text is shorter than the widest pass
        return divergence.result(layer_error(spec, package, constants, tokens))
    ids = tokens[: model.facts.rows[-1]]
    return divergence.result(max(layer_differences(spec, constants, ids, executor.found)))


def layer_error(
    spec: DecoderSpec, package: Package, constants: Constants, tokens: Sequence[int]
) -> float:
    """Return the largest relative difference of a layer, program against reference.

    Raises:
        ParityError: it is beyond ``LAYER_FLOOR``.

    """
    executor = Tapped(spec, constants)
    model = CoremlModel(package, executor)
    rows = model.facts.rows[-1]
    ids = [*tokens[:rows], *[tokens[-1]] * (rows - len(tokens[:rows]))]
    session = model.open(rows)
    session.forward(TokenTree.chain(ids), want=Want.LOGITS)
    return max(layer_differences(spec, constants, ids, executor.found))


def layer_differences(
    spec: DecoderSpec,
    constants: Constants,
    ids: Sequence[int],
    tapped: Mapping[str, Array],
    floor: float | None = None,
) -> list[float]:
    """Return each layer's relative difference, program against reference.

    Args:
        constants: of the program, exact.
        ids: tokens of the pass.
        tapped: ``Tapped.found`` of the pass.
        floor: beyond it the program has a bug; None is ``LAYER_FLOOR``.

    Raises:
        ParityError: a layer is beyond ``floor``.

    """
    package = constants.package
    reference = Reference(
        as_stored(spec, package.facts["form"]), StoredTensors(spec, package, constants)
    )
    before, found = reference.embed(ids), []
    most = LAYER_FLOOR if floor is None else floor
    for layer in range(spec.layers):
        # From the program's own stream, so that rounding does not add up over the layers.
        expected = reference.layer(layer, before)
        stream, branch = (tapped[identifier(f"layers.{layer}.{part}")] for part in PARTS)
        got = stream + branch
        difference = check_layer(layer, before, got, expected, "CoreML program", most)
        before = got
        found.append(difference)
    return found


class Tapped(ReferenceExecutor):
    """The interpreter; ``found`` has intermediate values of the widest function's first pass."""

    def __init__(self, spec: DecoderSpec, constants: Constants) -> None:
        super().__init__(constants)
        self._widest = f"logits_{constants.package.facts['rows'][-1]}"
        names = [identifier(f"layers.{i}.{part}") for i in range(spec.layers) for part in PARTS]
        self._interpreter = Interpreter(constants, self._widest, taps=names)
        self.found: dict[str, Array] = {}

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> dict[str, Array]:
        if function != self._widest or self.found:
            return super().predict(function, feeds, state, check)
        self.found = self._interpreter.run(feeds, state, check)
        return self.found
