"""Groups of features in which decoders differ; `models/decoder.py` combines them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# rms: x / rms(x) * weight (1910.07467). layer: mean and variance (1607.06450).
NormKind = Literal["rms", "layer"]

# Where attention and MLP are normalised: at their input (Llama), at their output (OLMo 2), or at
# both (Gemma 2). The residual stream itself is not.
Placement = Literal["pre", "post", "pre_post"]

# sequential: x += attention(norm(x)); x += mlp(norm(x)).
# parallel: x += attention(norm(x)) + mlp(other_norm(x)) (GPT-NeoX).
# shared: x += attention(n) + mlp(n) with one n = norm(x) (StableLM).
Residual = Literal["sequential", "parallel", "shared"]

# gelu is exact, with the error function; gelu_tanh its usual approximation.
Activation = Literal["silu", "gelu", "gelu_tanh"]

# Norms of query and key before the rotation, of the model's kind and without bias. head: over
# each head, one weight for all (Qwen3); heads: over each head, each with its own weight
# (StableLM); all: over the channels of all heads at once (OLMo 2). rotated: as head, but after the
# rotation (Hunyuan).
QkNorm = Literal["", "head", "heads", "all", "rotated"]


@dataclass(frozen=True, slots=True)
class Norm:
    """The norms of a decoder.

    Attributes:
        epsilon: what keeps the root away from zero.
        kind, placement: see above.
        bias: whether norms of the residual stream have one.

    """

    epsilon: float
    kind: NormKind = "rms"
    placement: Placement = "pre"
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A sparse mixture of experts in the MLP's place; a token uses a few (1701.06538).

    Attributes:
        count: MLPs of a layer.
        used: how many a token goes through, those the router gives the largest shares.
        renormalised: the shares of those add up to 1; else they are what the softmax over
            all gave them.

    """

    count: int
    used: int
    renormalised: bool


@dataclass(frozen=True, slots=True)
class ShortConv:
    """A gated convolution over the last tokens in attention's place (LFM2).

    ``before, after, x = split(in(n)); u = before * x; out(after * conv(u))``, where each channel of
    ``u`` is convolved by itself, without a bias. What it keeps of a text are the inputs ``u`` of
    its last ``taps - 1`` tokens.

    Attributes:
        taps: tokens that it reads, the current one included.

    """

    taps: int

    @property
    def kept(self) -> int:
        """Return how many tokens before the current one it reads."""
        return self.taps - 1


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A state space in attention's place (Mamba 2, 2405.21060).

    ``gate, c, dt = split(in(n)); x, B, C = split(silu(conv(c) + bias))``, a convolution of each
    channel by itself. With ``dt = softplus(dt + dt_bias)``, each head's state is ``S = exp(dt * A)
    S + outer(B, dt * x)`` and its output ``C S + D x``; ``out(norm(output * silu(gate)))``. What it
    keeps of a text is ``S``, and the inputs of the convolution of the last ``taps - 1`` tokens.

    Attributes:
        heads, head_dim: of ``x``.
        groups: of heads that share ``B`` and ``C``.
        state: channels of ``B`` and ``C``, rows of a head's state.
        taps: tokens that the convolution reads, the current one included.

    """

    heads: int
    head_dim: int
    groups: int
    state: int
    taps: int

    @property
    def kept(self) -> int:
        """Return how many tokens before the current one the convolution reads."""
        return self.taps - 1

    @property
    def inner(self) -> int:
        """Return the channels of ``x``, as many as of the gate and of the output."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Return the channels of the convolution: ``x``, ``B`` and ``C``."""
        return self.inner + 2 * self.groups * self.state


# What may stand in attention's place.
Mixer = ShortConv | Mamba2

# Beyond any known decoder.
MOST_TAPS = 64


def mixers(kinds: Iterable[Mixer | None]) -> tuple[Mixer | None, ...]:
    """Return what ``DecoderSpec.mixers`` is for these layers: nothing if all of them attend."""
    found = tuple(kinds)
    return found if any(found) else ()


@dataclass(frozen=True, slots=True)
class Scales:
    """Constants that multiply, and caps: ``cap * tanh(x / cap)``, 0 for none.

    Attributes:
        embed: of embeddings.
        attention: of the products of query and key; None is 1 / sqrt(head_dim).
        residual: of what attention and MLP add to the residual stream.
        logits: of logits, before their cap.
        attention_cap: on the scaled products of query and key, before the mask.
        logit_cap: on logits.

    """

    embed: float = 1.0
    attention: float | None = None
    residual: float = 1.0
    logits: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
