"""Which of llama.cpp's architectures computes a decoder, and what it wants to know.

Each entry states what the architecture does beyond Llama; whatever a decoder has and its entry
does not state is refused here, since llama.cpp would leave it out in silence or not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgedec.errors import UnsupportedArchitecture
from edgedec.export.gguf.naming import places
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Activation, Placement, QkNorm, Residual

Value = str | int | float | bool | list[bool]
Keys = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture of llama.cpp.

    Attributes:
        name: its ``general.architecture``.
        biases: roles whose bias it adds.
        norm, placement, residual, activation, gated, qk_norm: the traits it computes.
        interleaved: it rotates neighbours where checkpoints rotate halves.
        narrow: queries have as many channels as the residual stream.
        rope_factors: names of the tensors by which it divides frequencies; none if it has none.
        windows: it knows sliding windows.
        fused: by role, the roles whose tensors are one in the file, itself first.
        kept: roles of matrices that stay f32.
        keys: metadata of its own, without the architecture's name in front.
        factor: what a tensor is multiplied by; from spec, role and layer.

    """

    name: str
    biases: frozenset[str] = frozenset()
    norm: str = "rms"
    placement: Placement = "pre"
    residual: Residual = "sequential"
    activation: Activation = "silu"
    gated: bool = True
    qk_norm: QkNorm = ""
    interleaved: bool = False
    narrow: bool = False
    rope_factors: tuple[str, ...] = ()
    windows: bool = False
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    keys: Callable[[DecoderSpec], Keys] = lambda spec: {}
    factor: Callable[[DecoderSpec, str, int], float] = lambda spec, role, layer: 1.0

    def check(self, spec: DecoderSpec) -> None:
        """Refuse what this architecture leaves out.

        Raises:
            UnsupportedArchitecture: names the trait.

        """
        wanted = {
            "norm": spec.norm.kind,
            "placement": spec.norm.placement,
            "residual": spec.residual,
            "activation": spec.activation,
            "gated": spec.gated,
            "qk_norm": spec.qk_norm,
        }
        for trait, value in wanted.items():
            if getattr(self, trait) != value:
                raise self._lacks(spec, f"{trait.replace('_', ' ')} {value!r}")
        roles = {place.role for place in places(spec) if place.role.endswith("_bias")}
        for role in sorted(roles):
            if role.removesuffix("_bias") not in self.biases:
                raise self._lacks(spec, f"bias on {role.removesuffix('_bias')!r}")
        if self.narrow and spec.q_size != spec.hidden:
            raise self._lacks(spec, f"{spec.q_size} channels of queries beside {spec.hidden}")
        window = max(spec.windows)
        if not self.windows and 0 < window < spec.max_context:
            raise self._lacks(
                spec, f"window of {window} tokens", f"--max-context {window} needs none"
            )

    def _lacks(self, spec: DecoderSpec, what: str, advice: str = "") -> UnsupportedArchitecture:
        return UnsupportedArchitecture(
            f"llama.cpp's {self.name!r} has no {what}, which this {spec.architecture} needs:"
            f" {advice or 'export it to another format'}"
        )


def architecture_for(spec: DecoderSpec) -> Architecture:
    """The entry that computes this decoder.

    Raises:
        UnsupportedArchitecture: there is none.

    """
    if spec.architecture not in _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        raise UnsupportedArchitecture(
            f"model_type {spec.architecture!r} has no GGUF form here; there is one for {known}:"
            " export it to another format"
        )
    found = _KNOWN[spec.architecture]
    found.check(spec)
    return found


_ALL_BIASES = frozenset({"q", "k", "v", "o", "gate", "up", "down"})
_QKV = frozenset({"q", "k", "v"})
_LLAMA = Architecture(
    "llama", biases=_ALL_BIASES, interleaved=True, rope_factors=("rope_freqs.weight",)
)

_KNOWN: Mapping[str, Architecture] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": Architecture("qwen2", biases=_QKV, narrow=True),
    "qwen3": Architecture("qwen3", biases=_QKV, qk_norm="head"),
}
