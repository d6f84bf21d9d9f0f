"""Building blocks of a decoder in MIL: products, norms, factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgedec.coreml.builder import FunctionBuilder, Value, integers
from edgedec.coreml.types import Kind, TensorType
from edgedec.errors import UnsupportedArchitecture
from edgedec.export.coreml.options import ProgramOptions
from edgedec.export.coreml.rounded import Weight, WeightStore
from edgedec.export.tensors import FloatArray, TensorReader, read
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Activation

HALF, WHOLE = Kind.FLOAT16, Kind.FLOAT32
_GELU: Mapping[Activation, str] = {"gelu": "EXACT", "gelu_tanh": "TANH_APPROXIMATION"}


@dataclass(slots=True)
class ProgramParts:
    """One function under construction; see ``edgedec.export.flow.Parts``.

    Attributes:
        builder: collects the operations.

    """

    spec: DecoderSpec
    tensors: TensorReader
    store: WeightStore
    options: ProgramOptions
    builder: FunctionBuilder
    _weights: dict[str, Value] = field(default_factory=dict)

    @property
    def blends(self) -> bool:
        """Return whether the program is for the Neural Engine."""
        return self.options.form == "blend"

    def weight(self, stored: Weight) -> Value:
        """Return a stored weight as a value of this function."""
        if stored.name not in self._weights:
            name = identifier(f"w.{stored.name}")
            self._weights[stored.name] = self.builder.weight(
                name, stored.operation, stored.value, stored.type
            )
        return self._weights[stored.name]

    # -- see ``Parts`` --------------------------------------------------------------------------

    def linear(self, out: str, x: Value, layer: int, roles: tuple[str, ...], bias: bool) -> Value:
        names = [self.spec.name(role, layer) for role in roles]
        stored = self.weight(self.store.matrix("+".join(names), names))
        biases = [self.spec.name(f"{role}_bias", layer) for role in roles]
        added = self.weight(self.store.joined("+".join(biases), biases)) if bias else None
        return self.builder.linear(x, stored, added, identifier(out))

    def norm(self, out: str, x: Value, role: str, layer: int = 0) -> Value:
        # The head multiplies the output of the final norm, so the logits' factor is applied there.
        factor = np.float32(self.spec.scales.logits if role == "final_norm" else 1.0)
        roles = [role, f"{role}_bias"] if self.spec.norm.bias else [role]
        names = [self.spec.name(each, layer) for each in roles]
        normed = self.normed(x, *((n, read(self.tensors, n) * factor) for n in names))
        # Values of the residual stream are looked up by name when layers are compared.
        return self.same(out, normed) if role.endswith("post_norm") else normed

    def normed(self, x: Value, *weights: tuple[str, FloatArray]) -> Value:
        """Emit the norm over the last axis, with a named weight and, if there is one, a bias."""
        if self.spec.norm.kind == "layer":
            return self._layer_norm(x, *weights)
        return self._blended_rms(x, *weights) if self.blends else self._rms(x, *weights)

    def _rms(self, x: Value, *weights: tuple[str, FloatArray]) -> Value:
        """Emit an RMS norm in fp32: squares of large activations are beyond fp16."""
        b = self.builder
        wide = b.cast(x, WHOLE)
        mean = b.operation(
            "reduce_mean", TensorType(WHOLE, (*x.shape[:-1], 1)), x=b.binary("mul", wide, wide),
            axes=integers(len(x.shape) - 1), keep_dims=np.bool_(True),
        )[0]  # fmt: skip
        scale = b.like("rsqrt", mean, epsilon=np.float32(self.spec.norm.epsilon))
        normed = b.binary("mul", wide, scale)
        for operation, (name, values) in zip(("mul", "add"), weights, strict=False):
            normed = b.binary(operation, normed, self.weight(self.store.array(name, values)))
        return b.cast(normed, HALF)

    def _blended_rms(self, x: Value, *weights: tuple[str, FloatArray]) -> Value:
        """Emit an RMS norm as a layer norm of ``[x, -x]``, whose mean is zero.

        The Neural Engine computes layer norms as one operation, without squares in fp16.
        """
        b, width = self.builder, x.shape[-1]
        both = b.concat([x, b.binary("mul", x, -1.0)], len(x.shape) - 1)
        normed = b.split(self._standardised(both), width, width)[0]
        for operation, (name, values) in zip(("mul", "add"), weights, strict=False):
            normed = b.binary(operation, normed, self.weight(self.store.half(name, values)))
        return normed

    def _standardised(self, x: Value) -> Value:
        epsilon = np.float16(self.spec.norm.epsilon)
        return self.builder.like(
            "layer_norm", x, axes=integers(len(x.shape) - 1),
            epsilon=epsilon if x.type.kind is HALF else np.float32(self.spec.norm.epsilon),
        )  # fmt: skip

    def _layer_norm(self, x: Value, *weights: tuple[str, FloatArray]) -> Value:
        """Emit a layer norm; for GPU and CPU in fp32."""
        b = self.builder
        normed = self._standardised(x if self.blends else b.cast(x, WHOLE))
        for operation, (name, values) in zip(("mul", "add"), weights, strict=False):
            if self.blends:
                stored = self.store.half(name, values)
            else:
                stored = self.store.array(name, values.astype(np.float32))
            normed = b.binary(operation, normed, self.weight(stored))
        return b.cast(normed, HALF)

    def norm_of_sum(
        self, out: str, total: str, x: Value, branch: Value | None, role: str, layer: int = 0
    ) -> tuple[Value, Value]:
        summed = self.same(total, x) if branch is None else self.add(total, x, branch)
        return self.norm(out, summed, role, layer), summed

    def add(self, out: str, x: Value, y: Value) -> Value:
        return self.builder.operation("add", x.type, name=identifier(out), x=x, y=y)[0]

    def same(self, out: str, x: Value) -> Value:
        return self.builder.like("identity", x, name=identifier(out))

    def scaled(self, out: str, x: Value, factor: float) -> Value:
        number = self.builder.constant(np.float16(factor))
        return self.builder.operation("mul", x.type, name=identifier(out), x=x, y=number)[0]

    def activated(self, out: str, x: Value) -> Value:
        mode = _GELU.get(self.spec.activation)
        return self.builder.like("silu", x) if mode is None else self._gelu(x, mode)

    def _gelu(self, x: Value, mode: str) -> Value:
        return self.builder.like("gelu", x, mode=mode)

    def multiplied(self, out: str, x: Value, y: Value) -> Value:
        return self.builder.binary("mul", x, y)

    def halves(self, x: Value, first: str, second: str) -> tuple[Value, Value]:
        width = x.shape[-1] // 2
        one, two = self.builder.split(x, width, width)
        return one, two

    def mixture(self, layer: int, x: Value, out: str, shared: Value | None) -> Value:
        """Refuse: ``check_decoder`` has done so before."""
        raise UnsupportedArchitecture("the coreml format cannot hold a mixture of experts")

    def capped(self, x: Value, cap: float) -> Value:
        inner = self.builder.binary("real_div", x, cap)
        return self.builder.binary("mul", self.builder.like("tanh", inner), cap)


def identifier(name: str) -> str:
    """Return a name in the form that MIL accepts."""
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
