"""The ways in which an ONNX graph stores weights."""

from __future__ import annotations

from dataclasses import dataclass

FORMATS = ("int4", "int8", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class WeightForm:
    """The form in which weights are stored.

    Attributes:
        name: ``int4``, ``int8``, ``fp16`` or ``fp32``.
        block_size: quantised weights that share a scale.
        head_bits: of a quantised head; None is as the other matrices.

    """

    name: str
    block_size: int = 32
    head_bits: int | None = None

    @property
    def bits(self) -> int:
        """Bits of a weight in a quantised matrix."""
        return int(self.name[3:])
