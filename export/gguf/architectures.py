"""The traits of llama.cpp's architectures, and a check that a decoder has them.

An entry lists what its architecture computes in addition to Llama. A decoder with a trait that the
entry lacks is refused here, since llama.cpp would silently ignore it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.gguf.naming import LLAMA_LAYOUT, Layout, turning
from edgedec.export.gguf.sections import SIZED, Section, interval, near
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import DeltaNet, Mamba2, Mixer
from edgedec.models.traits import Activation, NormKind, Placement, QkNorm, Residual, Scales

ALL_BIASES = frozenset({"q", "k", "v", "o", "gate", "up", "down"})
QKV = frozenset({"q", "k", "v"})


def usual_scale(spec: DecoderSpec) -> float:
    """Return the factor on products of query and key that most architectures use."""
    return 1 / math.sqrt(spec.head_dim)


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture of llama.cpp.

    Attributes:
        name: its ``general.architecture``.
        other: llama.cpp takes one of so many layers for another kind of decoder; 0 if none.
        model_type: of a decoder read from its files, where it is not the name.
        norm, placement, residuals, activations, gated, qk_norms: the traits it computes.
        biases: roles whose bias it adds.
        interleaved: it rotates adjacent channels where checkpoints rotate halves.
        narrow: queries have as many channels as the residual stream.
        rope_factors: names of the tensors by which it divides frequencies; may be empty.
        windows: it has sliding windows, and a rotary base for layers with one.
        learned: it adds learned position embeddings instead of rotating.
        skips: every so many layers, one does not rotate; 0 if all do, None if the keys say which.
        experts: None for none; else whether the used experts' shares are renormalised.
        sigmoid: experts are chosen by sigmoids and stored numbers; the first layers have none.
        shared: experts, of which it need not have any, have an MLP beside them.
        even: keys have as many heads as queries.
        tied: its head is always the embedding.
        nope: a key may say that no layer rotates.
        gate: its attention has one.
        mixer: what some of its layers have in attention's place.
        layout: its arrangement of tensors.
        scales: fields of Scales that it applies, from its keys or implicitly.
        attention: its own factor on products of query and key.
        sections: of its metadata, in addition to those that every architecture has.
        constants: tensors that it requires and the decoder does not have, by name in the file.
        note: how it differs slightly from the source; empty if it does not.

    """

    name: str
    other: int = 0
    model_type: str = ""
    norm: NormKind = "rms"
    placement: Placement = "pre"
    residuals: tuple[Residual, ...] = ("sequential",)
    activations: tuple[Activation, ...] = ("silu",)
    gated: bool = True
    qk_norms: tuple[QkNorm, ...] = ("",)
    biases: frozenset[str] = frozenset()
    interleaved: bool = False
    narrow: bool = False
    rope_factors: tuple[str, ...] = ()
    windows: bool = False
    learned: bool = False
    skips: int | None = 0
    experts: bool | None = None
    sigmoid: bool = False
    shared: bool = False
    even: bool = False
    tied: bool = False
    nope: bool = False
    gate: bool = False
    mixer: type[Mixer] | None = None
    layout: Layout = LLAMA_LAYOUT
    scales: frozenset[str] = frozenset()
    attention: Callable[[DecoderSpec], float] = usual_scale
    sections: tuple[Section, ...] = ()
    constants: Callable[[DecoderSpec], Mapping[str, FloatArray]] = lambda spec: {}
    note: Callable[[DecoderSpec], str] = lambda spec: ""

    def lacking(self, spec: DecoderSpec) -> str:
        """Return the first trait of a decoder that this architecture lacks; empty if none."""
        return next(self._lacks(spec), "")

    def mixes(self, spec: DecoderSpec) -> bool:
        """Return whether it computes the kind of layer that a decoder has in attention's place."""
        kinds = {type(kind) for kind in spec.mixers if kind is not None}
        return kinds == ({self.mixer} if self.mixer else set())

    def factor(self, spec: DecoderSpec, role: str) -> float:
        """Return a tensor's factor; queries include one that the architecture does not apply."""
        carrier = ("q_norm",) if spec.qk_norm else ("q", "q_bias")
        if "attention" in self.scales or role not in carrier:
            return 1.0
        ratio = spec.attention_scale / self.attention(spec)
        return 1.0 if math.isclose(ratio, 1.0, rel_tol=1e-9) else ratio

    def order(self, spec: DecoderSpec, role: str) -> list[int]:
        """Return the order of rows within a head of queries or keys; otherwise one row."""
        if self.interleaved and role.removesuffix("_bias") in ("q", "k"):
            return turning(spec.head_dim, spec.rotary_dim)
        return [0]

    def _lacks(self, spec: DecoderSpec) -> Iterator[str]:
        if spec.norm.kind != self.norm or spec.norm.placement != self.placement:
            yield f"{spec.norm.kind} norm placed {spec.norm.placement!r}"
        if spec.qk_norm not in self.qk_norms:
            yield f"norm of query and key {spec.qk_norm!r}"
        if spec.residual not in self.residuals:
            yield f"{spec.residual} residual"
        if not self.mixes(spec):
            names = sorted({type(kind).__name__ for kind in spec.mixers if kind is not None})
            yield f"{names[0]} in attention's place" if names else "decoder of attention alone"
            return
        if spec.gated_attention != self.gate:
            yield "gate of attention" if spec.gated_attention else "attention without a gate"
        yield from self._lacks_delta(spec)
        yield from self._lacks_mamba(spec)
        if not (SIZED in self.sections) == bool(spec.sizes) == spec.norm.values:
            yield "layers of different sizes" if spec.sizes else "layers of one size"
        yield from self._lacks_mlp(spec)
        yield from self._lacks_biases(spec)
        yield from self._lacks_sizes(spec)
        yield from self._lacks_positions(spec)
        for field in dataclasses.fields(Scales):
            value = getattr(spec.scales, field.name)
            if field.name not in ("attention", *self.scales) and value != field.default:
                yield f"{field.name.replace('_', ' ')} of {value:g}"

    def _lacks_mlp(self, spec: DecoderSpec) -> Iterator[str]:
        if spec.activation not in self.activations or spec.gated != self.gated:
            yield f"{'gated ' * spec.gated}activation {spec.activation}"
        experts = spec.experts
        if experts is None and (self.experts is None or self.shared):
            return
        kinds = self.experts, self.sigmoid, self.shared
        if experts is None:
            yield "MLP without experts"
        elif (experts.renormalised, experts.sigmoid, bool(experts.shared)) != kinds:
            yield "such a mixture of experts"

    def _lacks_delta(self, spec: DecoderSpec) -> Iterator[str]:
        kinds = [kind for kind in spec.mixers if isinstance(kind, DeltaNet)]
        for kind in kinds[:1]:
            if kind.value_dim != kind.key_dim:
                yield f"values of {kind.value_dim} channels with keys of {kind.key_dim}"
            if spec.attending != tuple(range(spec.layers))[interval(spec) - 1 :: interval(spec)]:
                yield "attention in layers that are not evenly spaced"

    def _lacks_mamba(self, spec: DecoderSpec) -> Iterator[str]:
        for kind in spec.mixers:
            if isinstance(kind, Mamba2) and kind.inner != 2 * spec.hidden:
                yield f"{kind.inner} channels of Mamba with a hidden size of {spec.hidden}"
            if isinstance(kind, Mamba2) and kind.groups != 1:
                yield f"norm over {kind.groups} groups of heads at once"

    def _lacks_sizes(self, spec: DecoderSpec) -> Iterator[str]:
        if self.narrow and spec.q_size != spec.hidden:
            yield f"{spec.q_size} query channels with a hidden size of {spec.hidden}"
        if self.even and spec.kv_heads != spec.heads:
            yield f"{spec.kv_heads} key heads for {spec.heads} of queries"
        if self.tied and not spec.tied:
            yield "head of its own"
        if spec.layers == self.other:
            yield f"decoder of {spec.layers} layers that all attend to all tokens"
        own = [layer for layer in range(spec.layers) if spec.lender(layer) == layer]
        for layer in range(len(own), spec.layers):
            # llama.cpp counts back from the first layer without keys, whatever the pattern is.
            if spec.lender(layer) != len(own) - (2 if near(spec, layer) else 1):
                yield f"layer {layer} that reads the keys of layer {spec.lender(layer)}"

    def _lacks_biases(self, spec: DecoderSpec) -> Iterator[str]:
        there = {
            role.removesuffix("_bias")
            for place in self.layout.places(spec)
            for role, _ in place.parts
            if role.endswith("_bias") and "norm" not in role
        }
        yield from (f"bias of {role!r}" for role in sorted(there - self.biases))

    def _lacks_positions(self, spec: DecoderSpec) -> Iterator[str]:
        window = max(spec.windows)
        if not self.windows and 0 < window < spec.max_context:
            yield f"window of {window} tokens (it needs none with --max-context {window})"
        if len(set(spec.windows) - {0}) > 1:
            yield f"windows of several sizes ({sorted(set(spec.windows))})"
        if bool(spec.position_rows) != self.learned:
            yield "table of positions" if spec.position_rows else "way without one"
        for layer, rope in enumerate(spec.ropes):
            expected = not self.learned and not (self.skips and (layer + 1) % self.skips == 0)
            expected = expected and (spec.rope is not None or not self.nope)
            if spec.mixer(layer) is not None:
                continue
            if self.skips is not None and expected != (rope is not None):
                yield f"layer {layer} {'with' if rope else 'without'} rotation"
            usual = None if rope is None else spec.ropes[-1] if spec.sizes else spec.rope
            own = spec.windows[layer] or spec.sizes
            if rope != usual and not (self.windows and own):
                yield f"rotation of its own in layer {layer}"
            if rope and rope != usual and rope.kind != "default":
                yield f"{rope.kind} rotation behind a window"


def refuse(spec: DecoderSpec, name: str, lacking: str) -> UnsupportedArchitecture:
    """Return the error for a decoder that an architecture does not compute."""
    return UnsupportedArchitecture(
        f"llama.cpp's {name!r} has no {lacking}, which this {spec.architecture} needs:"
        " export it to another format"
    )
