"""The sizes of a decoder without a spec, for formats that need nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.decoder import DecoderSpec, Shape


@dataclass(frozen=True, slots=True)
class Outline(DecoderSpec):
    """A decoder of which only the sizes are known; asking for its tensors raises.

    Attributes:
        numbers: in the checkpoint's tensors.

    """

    numbers: int = 0

    @property
    def parameters(self) -> int:
        """Return the number of values in the checkpoint's tensors."""
        return self.numbers

    def _roles(self) -> Iterator[tuple[str, int, Shape]]:
        raise UnsupportedArchitecture(f"model_type {self.architecture!r} has no spec")
