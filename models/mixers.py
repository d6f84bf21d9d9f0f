"""Mixers that replace attention in a layer: their tensors, and what they keep of a text.

A recurrence has one state, which does not grow with the text, and every mixer here reads rows of
the last tokens through a convolution. A runtime keeps a row of each of the last tokens, from which
it goes on, and goes back, at no cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Shape = tuple[int, ...]

# Beyond any known decoder.
MOST_TAPS = 64
# Matrices with one row for each head. They decide how long a state remembers: fp32 always.
SMALL = frozenset({"mix_step", "mix_beta"})


class Mixer(ABC):
    """A mixer: what a layer has in place of attention.

    Attributes:
        taps: tokens that its convolution reads, the current one included.

    """

    __slots__ = ()
    taps: int

    @property
    def kept(self) -> int:
        """Return how many tokens before the current one the convolution reads."""
        return self.taps - 1

    @property
    def state(self) -> Shape:
        """Return the shape of its state, ``[heads, key channels, value channels]``, or ()."""
        return ()

    @abstractmethod
    def width(self, hidden: int) -> int:
        """Return the numbers of a token's row; those that the convolution reads come first."""

    @abstractmethod
    def matrices(self, hidden: int) -> Mapping[str, tuple[int, int]]:
        """Return rows and columns by role: those that read its input, then ``mix_out``."""

    @abstractmethod
    def others(self, hidden: int) -> Mapping[str, Shape]:
        """Return the shapes of its other tensors by role."""


@dataclass(frozen=True, slots=True)
class ShortConv(Mixer):
    """A gated convolution over the last tokens in attention's place (LFM2).

    ``before, after, x = split(in(n)); u = before * x; out(after * conv(u))``, where each channel of
    ``u`` is convolved by itself, without a bias. What it keeps of a text are the inputs ``u`` of
    its last ``taps - 1`` tokens.

    Attributes:
        taps: tokens that it reads, the current one included.

    """

    taps: int

    def width(self, hidden: int) -> int:
        """Return the channels of the convolution."""
        return hidden

    def matrices(self, hidden: int) -> Mapping[str, tuple[int, int]]:
        """See ``Mixer``."""
        return {"mix_in": (3 * hidden, hidden), "mix_out": (hidden, hidden)}

    def others(self, hidden: int) -> Mapping[str, Shape]:
        """See ``Mixer``."""
        return {"conv": (hidden, 1, self.taps)}


@dataclass(frozen=True, slots=True)
class DeltaNet(Mixer):
    """The gated delta rule in attention's place (2412.06464; Qwen3.5).

    ``q, k, v = split(silu(conv(in(n))))``, a convolution of each channel by itself; the heads of q
    and k have the length 1, and q is divided by the root of ``key_dim``. With the decay ``g =
    -exp(A_log) * softplus(step(n) + step_bias)`` and ``b = sigmoid(beta(n))``, each value head's
    state is ``S = exp(g) S; S += outer(k, b * (v - k S))`` and its output ``q S``;
    ``out(norm(output) * silu(gate(n)))``, normed by heads.

    Attributes:
        key_heads, key_dim: of queries, and of keys.
        value_heads, value_dim: of values; those that share a key follow one another.
        taps: tokens that the convolution reads, the current one included.

    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    taps: int

    @property
    def keys(self) -> int:
        """Return the channels of all keys, as many as of queries."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Return the channels of all values."""
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Return the channels of the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def state(self) -> Shape:
        """See ``Mixer``."""
        return self.value_heads, self.key_dim, self.value_dim

    def width(self, hidden: int) -> int:
        """Return the channels of the convolution, and of decay and beta."""
        return self.convolved + 2 * self.value_heads

    def matrices(self, hidden: int) -> Mapping[str, tuple[int, int]]:
        """See ``Mixer``."""
        return {
            "mix_in": (self.convolved, hidden),
            "mix_gate": (self.values, hidden),
            "mix_step": (self.value_heads, hidden),
            "mix_beta": (self.value_heads, hidden),
            "mix_out": (hidden, self.values),
        }

    def others(self, hidden: int) -> Mapping[str, Shape]:
        """See ``Mixer``."""
        return {
            "conv": (self.convolved, 1, self.taps),
            "step_bias": (self.value_heads,),
            "decay": (self.value_heads,),
            "mix_norm": (self.value_dim,),
        }


@dataclass(frozen=True, slots=True)
class Mamba2(Mixer):
    """A state space in attention's place (Mamba 2, 2405.21060).

    ``gate, c, dt = split(in(n)); x, B, C = split(silu(conv(c) + bias))``, a convolution of each
    channel by itself. With ``dt = softplus(dt + dt_bias)``, each head's state is ``S = exp(dt * A)
    S + outer(B, dt * x)`` and its output ``C S + D x``; ``out(norm(output * silu(gate)))``. What it
    keeps of a text is ``S``, and the inputs of the convolution of the last ``taps - 1`` tokens.

    Attributes:
        heads, head_dim: of ``x``.
        groups: of heads that share ``B`` and ``C``.
        channels: of ``B`` and ``C``, rows of a head's state.
        taps: tokens that the convolution reads, the current one included.

    """

    heads: int
    head_dim: int
    groups: int
    channels: int
    taps: int

    @property
    def inner(self) -> int:
        """Return the channels of ``x``, as many as of the gate and of the output."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Return the channels of the convolution: ``x``, ``B`` and ``C``."""
        return self.inner + 2 * self.groups * self.channels

    @property
    def state(self) -> Shape:
        """See ``Mixer``."""
        return self.heads, self.channels, self.head_dim

    def width(self, hidden: int) -> int:
        """Return the channels of the convolution, and of the steps."""
        return self.convolved + self.heads

    def matrices(self, hidden: int) -> Mapping[str, tuple[int, int]]:
        """See ``Mixer``."""
        return {
            "mix_in": (self.inner + self.convolved, hidden),
            "mix_step": (self.heads, hidden),
            "mix_out": (hidden, self.inner),
        }

    def others(self, hidden: int) -> Mapping[str, Shape]:
        """See ``Mixer``."""
        return {
            "conv": (self.convolved, 1, self.taps),
            "conv_bias": (self.convolved,),
            **dict.fromkeys(("step_bias", "decay", "skip"), (self.heads,)),
            "mix_norm": (self.inner,),
        }


def mixers(kinds: Iterable[Mixer | None]) -> tuple[Mixer | None, ...]:
    """Return what ``DecoderSpec.mixers`` is for these layers: nothing if all of them attend."""
    found = tuple(kinds)
    return found if any(found) else ()
