"""What differs between heads that draft from a target's residual streams."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgedec.models.decoder import DecoderSpec, Shape
from edgedec.models.sources import TensorSource

# attention: queries, keys and values read token and state side by side. product: a matrix makes one
# row of both, which an ordinary layer reads.
Join = Literal["attention", "product"]
# raw: as it is. normed: after the norm of the carried state (of the head's output, for ``carry``).
Form = Literal["raw", "normed"]
FuseNorm = Literal["", "all", "each"]


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """A head: a fusion of the target's streams, and one decoder layer that reads it with a token.

    One that ``borrows`` has several layers, none of them with keys and values (Gemma 4).

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
        join: how a row combines its token and its state, each after a norm of its own.
        state_first: in what it reads, the state's channels come before the token's.
        fused: a matrix makes the carried state from the streams; else it is the one stream itself.
        target_norm: that stream is read after the target's final norm.
        own_output: its logits are products with a matrix of its own; else with the target's, of
            the target's vocabulary.
        borrows: by layer of its own, the target's layer whose keys and values it reads; empty for
            a head of one layer that has its own.
        width: channels of the target's states, where its own have others; 0 where they have not.
        routes: clusters of its tokens, and how many of them it scores; None for all tokens.
        stored: by canonical name, where checkpoints keep a tensor, and in which form; of several
            the first that is there.
        note: what the user should know about it, in a line; may be empty.

    """

    kind: str
    taps: tuple[int, ...]
    layer: DecoderSpec
    target_vocab: int
    fuse_norm: FuseNorm = ""
    residual: Form = "raw"
    carry: Form = "raw"
    join: Join = "attention"
    state_first: bool = False
    fused: bool = True
    target_norm: bool = False
    own_output: bool = True
    borrows: tuple[int, ...] = ()
    width: int = 0
    routes: tuple[int, int] | None = None
    stored: Mapping[str, tuple[TensorSource, ...]] = field(default_factory=dict)
    note: str = ""

    @property
    def hidden(self) -> int:
        """Channels of a carried state, those of the target's embedding."""
        return self.width or self.layer.hidden

    @property
    def parameters(self) -> int:
        """Return the number of values in its own tensors."""
        return sum(math.prod(shape) for shape in self.tensors().values())

    @property
    def scored(self) -> int:
        """Return how many tokens get a logit in a row."""
        whole = self.layer.vocab_size
        return whole if self.routes is None else whole // self.routes[0] * self.routes[1]

    def changed(self, **changes: object) -> HeadSpec:
        """Return the same head with other wiring."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def tensors(self) -> dict[str, Shape]:
        """Return every canonical tensor with its shape, without those of the target."""
        layer, hidden = self.layer, self.hidden
        if self.borrows:
            return self._borrowing()
        found: dict[str, Shape] = {}
        if self.fused:
            found[FUSE] = (hidden, len(self.taps) * hidden)
        found[HIDDEN_NORM] = (hidden,)
        if self.target_norm:
            found[TARGET_NORM] = (hidden,)
        if self.join == "product":
            found |= {TOKEN_NORM: (hidden,), PRODUCT: (hidden, 2 * hidden)}
        if self.fuse_norm == "all":
            found[FUSE_NORM.format(tap="all")] = (len(self.taps) * hidden,)
        elif self.fuse_norm == "each":
            found |= {FUSE_NORM.format(tap=tap): (hidden,) for tap in range(len(self.taps))}
        wide = {layer.name(role) for role in ("q", "k", "v") if self.join == "attention"}
        targets = {layer.name("embed")} | (set() if self.own_output else {layer.name("head")})
        for name, shape in layer.tensors().items():
            if name not in targets:
                found[name] = (shape[0], 2 * hidden) if name in wide else shape
        return found

    def _borrowing(self) -> dict[str, Shape]:
        """Return the tensors of a head that reads its target's keys and values."""
        own, hidden = self.layer.hidden, self.hidden
        found = {**self.layer.tensors(), ENTRY: (own, 2 * hidden), EXIT: (hidden, own)}
        if self.routes is not None:
            found[CENTROIDS] = (self.routes[0], own)
        return found


@dataclass(frozen=True, slots=True)
class Wiring:
    """A head with one thing changed.

    Attributes:
        spec: the head.
        remedy: how its configuration would say so.
        depth: the first depth of a draft at which it makes a difference, from 1.

    """

    spec: HeadSpec
    remedy: str
    depth: int = 1


# Canonical names beyond those of a decoder.
FUSE_NORM = "fuse_norm.{tap}.weight"
FUSE, HIDDEN_NORM = "fuse.weight", "model.layers.0.hidden_norm.weight"
TOKEN_NORM, PRODUCT = "model.layers.0.token_norm.weight", "model.layers.0.product.weight"
TARGET_NORM = "target_norm.weight"
# Of a head that reads its target's keys and values: from the target's channels to its own, and
# back; and what it scores clusters of tokens by.
ENTRY, EXIT, CENTROIDS = "entry.weight", "exit.weight", "centroids.weight"
