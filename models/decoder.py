"""``DecoderSpec``: the facts that every emitter and the numpy reference work from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.mixers import Mixer
from edgedec.models.rope import FloatArray, Rope
from edgedec.models.sources import CANONICAL, TensorSource
from edgedec.models.traits import (
    Activation,
    Experts,
    LayerSizes,
    Norm,
    QkNorm,
    Residual,
    Scales,
)

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder of attention with grouped queries, or what stands in its place, and an MLP.

    Attributes:
        architecture: the ``model_type`` it came from.
        hidden, ffn, layers, heads, kv_heads, head_dim: sizes, in channels or counts.
        vocab_size: rows of the embedding and of the head.
        vocab_used: rows that are tokens; the ones above are padding that never wins.
        max_context: tokens the model was trained for.
        norm: kind and place of its norms.
        windows: per layer, how many tokens a token sees, itself included; 0 is all.
        ropes: per layer the rotary embedding; None for a layer without positions (NoPE).
        mixers: per layer what stands in attention's place; None is attention, and so is an empty
            tuple for all layers.
        sizes: of each layer, where layers differ in them; empty where ``ffn``, ``kv_heads``,
            ``head_dim`` and ``rotary_dim`` are those of all.
        per_layer_inputs: channels of an input that each layer has besides the residual stream: rows
            of a table of tokens, to which a projection of the embeddings is added; 0 is none.
        factors: whether each layer's output is multiplied by a stored number.
        rotary_dim: the first channels of each head, which are rotated; others pass.
        position_rows: rows of a learned table of positions (added to embeddings); 0 is none.
        residual: whether attention and MLP work one after the other or side by side.
        experts: the mixture in the MLP's place, where ``ffn`` is the size of one expert.
        activation, gated: ``down(act(gate(x)) * up(x))``, or ``down(act(up(x)))``.
        qkv_bias, out_bias, mlp_bias: which projections have a bias.
        gated_attention: what attention returns is multiplied by ``sigmoid(attention_gate(x))``.
        qk_norm: norms of query and key; empty for none.
        scales: constant factors, and caps.
        tied: the head is the embedding's transpose.
        sources: by role, canonical tensors that a checkpoint keeps in another place or form.
        prefixes: what stored names of the decoder may begin with; the first is what
            ``sources`` and canonical names have, others stand for it.

    """

    architecture: str
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    vocab_used: int
    max_context: int
    norm: Norm
    windows: tuple[int, ...]
    ropes: tuple[Rope | None, ...]
    rotary_dim: int
    mixers: tuple[Mixer | None, ...] = ()
    sizes: tuple[LayerSizes, ...] = ()
    per_layer_inputs: int = 0
    factors: bool = False
    position_rows: int = 0
    residual: Residual = "sequential"
    experts: Experts | None = None
    activation: Activation = "silu"
    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    gated_attention: bool = False
    qk_norm: QkNorm = ""
    scales: Scales = field(default_factory=Scales)
    tied: bool = False
    sources: Mapping[str, TensorSource] = field(default_factory=dict, compare=False)
    prefixes: tuple[str, ...] = field(default=("model.",), compare=False)

    # -- derived sizes --------------------------------------------------------------------------

    @property
    def q_size(self) -> int:
        """Return the channels of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Return the channels of all key heads, as many as of all value heads."""
        return self.kv_heads * self.head_dim

    def at(self, layer: int) -> DecoderSpec:
        """Return the same decoder with the sizes, and the kind of MLP, of one layer for all."""
        experts = self.experts
        if experts is not None and layer < experts.dense_layers:
            return dataclasses.replace(self, experts=None, ffn=experts.dense_ffn)
        if not self.sizes:
            return self
        own = self.sizes[layer]
        return dataclasses.replace(self, sizes=(), kv_heads=own.kv_heads, head_dim=own.head_dim,
                                   rotary_dim=own.rotary_dim, ffn=own.ffn)  # fmt: skip

    def lender(self, layer: int) -> int:
        """Return the layer whose keys and values a layer reads: itself, if they are its own."""
        shares = self.sizes[layer].shares if self.sizes else None
        return layer if shares is None else shares

    @property
    def lenders(self) -> tuple[int, ...]:
        """Return the layers whose keys and values later ones read, ascending."""
        return tuple(sorted({own.shares for own in self.sizes if own.shares is not None}))

    def carried(self, layer: int) -> dict[str, int]:
        """Return what a layer may read of earlier ones besides the stream, and its channels."""
        found = {}
        if self.per_layer_inputs:
            found["per_layer_inputs"] = self.layers * self.per_layer_inputs
        for lender in self.lenders:
            if lender < layer:
                size = self.at(lender).kv_size
                found |= {f"layers.{lender}.key": size, f"layers.{lender}.value": size}
        return found

    @property
    def kv_channels(self) -> int:
        """Return the channels of a token's keys in all layers that have their own."""
        return sum(self.at(layer).kv_size for layer in self.caching)

    @property
    def caching(self) -> tuple[int, ...]:
        """Return the layers that have keys and values of their own."""
        return tuple(layer for layer in self.attending if self.lender(layer) == layer)

    @property
    def attending(self) -> tuple[int, ...]:
        """Return the layers with attention, which have keys and values."""
        return tuple(layer for layer in range(self.layers) if self.mixer(layer) is None)

    def mixer(self, layer: int) -> Mixer | None:
        """Return what stands in a layer's attention's place; None for attention."""
        return self.mixers[layer] if self.mixers else None

    @property
    def recurs(self) -> bool:
        """Whether a layer has a state."""
        return any(kind is not None and kind.state for kind in self.mixers)

    def check_attends(self, format: str) -> None:
        """Raise UnsupportedArchitecture for a format that computes attention of one size only."""
        if self.sizes:
            raise UnsupportedArchitecture(
                f"the format {format} has heads of one size, and those of {self.architecture}"
                " differ by layer: export it to onnx or gguf"
            )
        if self.mixers:
            raise UnsupportedArchitecture(
                f"the format {format} computes attention only, and {self.architecture} has other"
                " layers in its place: export it to onnx or gguf"
            )

    @property
    def attention_scale(self) -> float:
        """Return the factor on products of query and key."""
        scale = self.scales.attention
        return 1 / math.sqrt(self.head_dim) if scale is None else scale

    @property
    def parameters(self) -> int:
        """Return the number of values in all canonical tensors."""
        return sum(math.prod(shape) for shape in self.tensors().values())

    # -- positions ------------------------------------------------------------------------------

    @property
    def rope(self) -> Rope | None:
        """Return the rotary embedding of full-attention layers, or of the first layer with one."""
        pairs = list(zip(self.ropes, self.windows, strict=True))
        found = [rope for rope, window in pairs if rope and not window]
        return next(iter([*found, *(rope for rope in self.ropes if rope)]), None)

    def rope_tables(self, layer: int, positions: int) -> tuple[FloatArray, FloatArray] | None:
        """Return a layer's cosines and sines, each ``[positions, rotary_dim / 2]`` float32.

        A stretched embedding is that of a text of ``max_context`` tokens, however many
        positions are wanted.
        """
        rope = self.ropes[layer]
        if rope is None:
            return None
        return rope.tables(self.at(layer).rotary_dim, positions, self.max_context)

    def within(self, max_context: int | None) -> DecoderSpec:
        """Return the same decoder for shorter texts; ``max_context`` None is its own context.

        A sliding window longer than any such text is dropped.
        """
        longest = min(max_context or self.max_context, self.max_context)
        windows = tuple(window if window < longest else 0 for window in self.windows)
        return dataclasses.replace(self, max_context=longest, windows=windows)

    # -- tensors --------------------------------------------------------------------------------

    def name(self, role: str, layer: int = 0) -> str:
        """Return a tensor's canonical name; ``head`` is ``embed`` if they are tied."""
        if role == "head" and self.tied:
            role = "embed"
        return CANONICAL[role].format(layer=layer)

    def tensors(self) -> dict[str, Shape]:
        """Return every canonical tensor with its shape (weights are [out, in])."""
        return {self.name(role, layer): shape for role, layer, shape in self._roles()}

    def origins(self) -> dict[str, TensorSource]:
        """Return the checkpoint's source of each canonical tensor."""
        return {
            self.name(role, layer): self.sources.get(role, TensorSource(CANONICAL[role])).at(layer)
            for role, layer, _ in self._roles()
        }

    def stored(self) -> Iterator[tuple[str, Shape]]:
        """Yield every tensor that a checkpoint must hold, with its shape; some more than once."""
        origins = self.origins()
        for name, shape in self.tensors().items():
            yield from origins[name].stored(shape).items()

    def _roles(self) -> Iterator[tuple[str, int, Shape]]:
        """Yield role, layer and shape of each tensor."""
        yield "embed", 0, (self.vocab_size, self.hidden)
        if self.position_rows:
            yield "positions", 0, (self.position_rows, self.hidden)
        yield from ((role, 0, shape) for role, shape in self._norm_shapes("final_norm"))
        if not self.tied:
            yield "head", 0, (self.vocab_size, self.hidden)
        if self.per_layer_inputs:
            rows = self.layers * self.per_layer_inputs
            yield "per_layer_table", 0, (self.vocab_size, rows)
            yield "per_layer_in", 0, (rows, self.hidden)
            yield "per_layer_in_norm", 0, (self.per_layer_inputs,)
        for layer in range(self.layers):
            yield from ((role, layer, shape) for role, shape in self._layer_shapes(layer))

    def _layer_shapes(self, layer: int) -> Iterator[tuple[str, Shape]]:
        mixer, at = self.mixer(layer), self.at(layer)
        matrices = self._kept_shapes(layer) | at._mlp_shapes() | self._per_layer_shapes()
        for role, (rows, columns, bias) in matrices.items():
            yield role, (rows, columns)
            if bias:
                yield f"{role}_bias", (rows,)
        if mixer is not None:
            yield from mixer.others(self.hidden).items()
        if at.experts is not None and at.experts.sigmoid:
            yield "probs_bias", (at.experts.count,)
        for role in self.layer_norms:
            yield from self._norm_shapes(role)
        if self.qk_norm and mixer is None:
            shared = self.qk_norm in ("head", "rotated")
            yield "q_norm", (at.head_dim if shared else at.q_size,)
            if self.lender(layer) == layer:
                yield "k_norm", (at.head_dim if shared else at.kv_size,)
        if self.per_layer_inputs:
            yield "per_layer_norm", (self.hidden,)
        if self.factors:
            yield "factor", (1,)

    def mixer_matrices(self, layer: int) -> tuple[str, ...]:
        """Return the roles of the matrices of a layer's attention, or of what is in its place."""
        return tuple(self._kept_shapes(layer))

    @property
    def per_layer_matrices(self) -> tuple[str, ...]:
        """Return the roles of the matrices of a layer's own input."""
        return tuple(self._per_layer_shapes())

    def _kept_shapes(self, layer: int) -> dict[str, tuple[int, int, bool]]:
        """Return as ``_mixer_shapes`` does, without the matrices that the layer does without."""
        shapes = self.at(layer)._mixer_shapes(self.mixer(layer))
        less: tuple[str, ...] = ("k", "v") if self.lender(layer) != layer else ()
        if self.sizes and self.sizes[layer].keys_only:
            less = (*less, "v")
        return {role: shape for role, shape in shapes.items() if role not in less}

    def _mixer_shapes(self, mixer: Mixer | None) -> dict[str, tuple[int, int, bool]]:
        """Return as ``_mlp_shapes`` does, of attention or what stands in its place."""
        if mixer is not None:
            return {role: (*shape, False) for role, shape in mixer.matrices(self.hidden).items()}
        gate = {"attention_gate": (self.q_size, self.hidden, self.qkv_bias)}
        return {
            "q": (self.q_size, self.hidden, self.qkv_bias),
            "k": (self.kv_size, self.hidden, self.qkv_bias),
            "v": (self.kv_size, self.hidden, self.qkv_bias),
            **(gate if self.gated_attention else {}),
            "o": (self.hidden, self.q_size, self.out_bias),
        }

    def _per_layer_shapes(self) -> dict[str, tuple[int, int, bool]]:
        """Return as ``_mlp_shapes`` does, of what adds a layer's own input to the stream."""
        if not self.per_layer_inputs:
            return {}
        return {
            "per_layer_gate": (self.per_layer_inputs, self.hidden, False),
            "per_layer_out": (self.hidden, self.per_layer_inputs, False),
        }

    def _mlp_shapes(self) -> dict[str, tuple[int, int, bool]]:
        """Return rows and columns of matrices by role, and whether each has a bias."""
        ways = ("gate", "up") if self.gated else ("up",)
        if self.experts is not None:
            rows, count = self.experts.count * self.ffn, self.experts.count
            return {
                "router": (count, self.hidden, False),
                **{f"experts_{way}": (rows, self.hidden, False) for way in ways},
                "experts_down": (count * self.hidden, self.ffn, False),
                **self._shared_shapes(ways, self.experts),
            }
        inner = (self.ffn, self.hidden, self.mlp_bias)
        return {**dict.fromkeys(ways, inner), "down": (self.hidden, self.ffn, self.mlp_bias)}

    def _shared_shapes(
        self, ways: tuple[str, ...], experts: Experts
    ) -> dict[str, tuple[int, int, bool]]:
        size, found = experts.shared, {}
        if experts.shared_gated:
            found["shared_router"] = (1, self.hidden, False)
        if size:
            found |= {f"shared_{way}": (size, self.hidden, False) for way in ways}
            found["shared_down"] = (self.hidden, size, False)
        return found

    @property
    def layer_norms(self) -> tuple[str, ...]:
        """Return the roles of a layer's norms, before and after attention and MLP."""
        if self.norm.placement == "pre":
            return ("attention_norm",) + ("mlp_norm",) * (self.residual != "shared")
        after = ("attention_post_norm", "mlp_post_norm")
        before = ("attention_norm", "mlp_norm")
        return after if self.norm.placement == "post" else before + after

    def _norm_shapes(self, role: str) -> Iterator[tuple[str, Shape]]:
        yield role, (self.hidden,)
        if self.norm.bias:
            yield f"{role}_bias", (self.hidden,)
