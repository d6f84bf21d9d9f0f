"""A decoder's tensors as a package stores them, to tell emitter bugs from quantisation error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from edgedec.coreml import Package
from edgedec.coreml.constants import Constants
from edgedec.coreml.program import Operation
from edgedec.export.coreml.parts import identifier
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec


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
