"""Groups of features in which decoders differ; `models/decoder.py` combines them."""

from __future__ import annotations

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
        values: whether each head's values are normed as well, without a weight.

    """

    epsilon: float
    kind: NormKind = "rms"
    placement: Placement = "pre"
    bias: bool = False
    values: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A sparse mixture of experts in the MLP's place; a token uses a few (1701.06538).

    Attributes:
        count: MLPs of a layer.
        used: how many a token goes through, those the router gives the largest shares.
        renormalised: the shares of those add up to 1; else they are what the softmax over
            all gave them.
        shared: channels of an MLP beside them that every token goes through; 0 for none.
        sigmoid: the router's shares are sigmoids, to which a stored number is added where experts
            are chosen (``probs_bias``); else they are a softmax.
        dense_layers, dense_ffn: the first layers, which have an MLP in their place, and its
            channels.
        shared_gated: what that returns is multiplied by ``sigmoid(shared_router x)``, a number.

    """

    count: int
    used: int
    renormalised: bool
    shared: int = 0
    shared_gated: bool = False
    sigmoid: bool = False
    dense_layers: int = 0
    dense_ffn: int = 0


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of one layer, where layers differ in them (Gemma 4).

    Attributes:
        kv_heads, head_dim, rotary_dim, ffn: as of ``DecoderSpec``.
        shares: the earlier layer whose keys and values it reads, where it has none of its own.
        keys_only: values are the keys before their norm and rotation; no matrix is theirs.

    """

    kv_heads: int
    head_dim: int
    rotary_dim: int
    ffn: int
    shares: int | None = None
    keys_only: bool = False


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
