"""``HeadSpec``: what differs between heads that draft from a target's residual streams."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgedec.models.decoder import DecoderSpec, Shape

# raw: as it is. normed: after the norm of the carried state (of the head's output, for ``carry``).
Form = Literal["raw", "normed"]
FuseNorm = Literal["", "all", "each"]


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """A head: a fusion of the target's streams, and one decoder layer that reads it with a token.

    Row p reads token p + 1 and the fused streams of token p, and predicts token p + 2. Below the
    last row with streams it reads its own output instead.

    Attributes:
        kind: the file of ``models/heads`` that describes it.
        taps: layers of the target before which it reads the residual stream; the target's number of
            layers stands for the stream after the last one. In the order of the fusion's columns.
        layer: its layer, a decoder of one, whose vocabulary are the tokens it drafts.
        target_vocab: the target's columns.
        fuse_norm: norms of the streams before the fusion: none, one over all, or one for each.
        residual: what its attention is added to: the carried state, before or after its norm.
        carry: what a row hands to the next: the layer's output, before or after the last norm.
        stored: by canonical name, the names that checkpoints have for a tensor.

    """

    kind: str
    taps: tuple[int, ...]
    layer: DecoderSpec
    target_vocab: int
    fuse_norm: FuseNorm = ""
    residual: Form = "raw"
    carry: Form = "raw"
    stored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """Channels of a carried state, those of the target's embedding."""
        return self.layer.hidden

    def changed(self, **changes: object) -> HeadSpec:
        """Return the same head with other wiring."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def tensors(self) -> dict[str, Shape]:
        """Return every canonical tensor with its shape; the embedding is the target's."""
        layer, hidden = self.layer, self.hidden
        found: dict[str, Shape] = {
            FUSE: (hidden, len(self.taps) * hidden),
            HIDDEN_NORM: (hidden,),
        }
        if self.fuse_norm == "all":
            found[FUSE_NORM.format(tap="all")] = (len(self.taps) * hidden,)
        elif self.fuse_norm == "each":
            found |= {FUSE_NORM.format(tap=tap): (hidden,) for tap in range(len(self.taps))}
        wide = {layer.name(role) for role in ("q", "k", "v")}
        for name, shape in layer.tensors().items():
            if name != layer.name("embed"):
                found[name] = (shape[0], 2 * hidden) if name in wide else shape
        return found


# Canonical names beyond those of a decoder.
FUSE_NORM = "fuse_norm.{tap}.weight"
FUSE, HIDDEN_NORM = "fuse.weight", "model.layers.0.hidden_norm.weight"
