"""llama.cpp's names for the tensors of a decoder, and the order of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import SMALL, Mamba2
from edgedec.models.sources import CANONICAL

# Names by role. A bias has its weight's name with another suffix.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "embed": "token_embd",
        "positions": "position_embd",
        "final_norm": "output_norm",
        "head": "output",
        "attention_norm": "blk.{layer}.attn_norm",
        "attention_post_norm": "blk.{layer}.post_attention_norm",
        "mlp_norm": "blk.{layer}.ffn_norm",
        "mlp_post_norm": "blk.{layer}.post_ffw_norm",
        "q": "blk.{layer}.attn_q",
        "k": "blk.{layer}.attn_k",
        "v": "blk.{layer}.attn_v",
        "o": "blk.{layer}.attn_output",
        "q_norm": "blk.{layer}.attn_q_norm",
        "k_norm": "blk.{layer}.attn_k_norm",
        "per_layer_table": "per_layer_token_embd",
        "per_layer_in": "per_layer_model_proj",
        "per_layer_in_norm": "per_layer_proj_norm",
        "per_layer_gate": "blk.{layer}.inp_gate",
        "per_layer_out": "blk.{layer}.proj",
        "per_layer_norm": "blk.{layer}.post_norm",
        "factor": "blk.{layer}.layer_output_scale",
        "mix_in": "blk.{layer}.shortconv.in_proj",
        "conv": "blk.{layer}.shortconv.conv",
        "mix_out": "blk.{layer}.shortconv.out_proj",
        "mix_gate": "blk.{layer}.attn_gate",
        "mix_step": "blk.{layer}.ssm_alpha",
        "mix_beta": "blk.{layer}.ssm_beta",
        "step": "blk.{layer}.ssm_dt",
        "decay": "blk.{layer}.ssm_a",
        "skip": "blk.{layer}.ssm_d",
        "mix_norm": "blk.{layer}.ssm_norm",
        "gate": "blk.{layer}.ffn_gate",
        "up": "blk.{layer}.ffn_up",
        "down": "blk.{layer}.ffn_down",
        "router": "blk.{layer}.ffn_gate_inp",
        "probs": "blk.{layer}.exp_probs_b",
        "experts_gate": "blk.{layer}.ffn_gate_exps",
        "experts_up": "blk.{layer}.ffn_up_exps",
        "experts_down": "blk.{layer}.ffn_down_exps",
        "shared_router": "blk.{layer}.ffn_gate_inp_shexp",
        "shared_gate": "blk.{layer}.ffn_gate_shexp",
        "shared_up": "blk.{layer}.ffn_up_shexp",
        "shared_down": "blk.{layer}.ffn_down_shexp",
    }
)


# Always f32, since they are small and have a large effect.
_KEPT = SMALL | {"positions", "router", "shared_router", "conv", "decay", "skip"}
# Their names have no suffix.
_BARE = frozenset({"decay", "skip"})


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor of a GGUF file.

    Attributes:
        name: in the file.
        parts: role and canonical name of the tensors stacked in it.
        layer: 0 if it belongs to none.
        shape: in numpy's order, rows first.

    """

    name: str
    parts: tuple[tuple[str, str], ...]
    layer: int
    shape: tuple[int, ...]

    @property
    def matrix(self) -> bool:
        """True for matrices and embeddings, which may be stored in less than f32."""
        role = self.parts[0][0]
        return len(self.shape) > 1 and not role.endswith("norm") and role not in _KEPT


@dataclass(frozen=True, slots=True)
class Layout:
    """Differences of an architecture's tensors from Llama's.

    Attributes:
        fused: by name in the file, the roles whose rows are stacked there.
        own_head: it needs a head of its own, even if the head is tied to the embedding.
        names: names by role, where they are not Llama's.

    """

    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own_head: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def stored(self, role: str, layer: int) -> str:
        """Return the name in the file of the tensor that holds a role, by itself or with others."""
        plain = role.removesuffix("_bias")
        own = {**NAMES, **self.names}.get(plain, "")
        stem = next((stem for stem, roles in self.fused.items() if plain in roles), own)
        return stem.format(layer=layer) + _suffix(role)

    def places(self, spec: DecoderSpec) -> Iterator[TensorPlace]:
        """Yield every tensor of a decoder, embedding first."""
        shapes, names = spec.tensors(), {**NAMES, **self.names}
        joined = {role for roles in self.fused.values() for role in roles}
        for role, template in CANONICAL.items():
            for layer in range(spec.layers if "{layer}" in template else 1):
                name = template.format(layer=layer)
                if name in shapes and role.removesuffix("_bias") not in joined:
                    yield _place((role,), names, spec, layer, shapes)
        for stem, roles in self.fused.items():
            for ending in ("", "_bias"):
                members = tuple(f"{role}{ending}" for role in roles)
                template = CANONICAL.get(members[0], "")
                for layer in range(spec.layers):
                    if template.format(layer=layer) in shapes:
                        yield _place(members, {roles[0]: stem}, spec, layer, shapes)
        if self.own_head and spec.tied:
            yield _place(("head",), NAMES, spec, 0, shapes)


LLAMA_LAYOUT = Layout()
QKV_STEM = "blk.{layer}.attn_qkv"
FUSED_QKV: Mapping[str, tuple[str, ...]] = MappingProxyType({QKV_STEM: ("q", "k", "v")})


def _place(
    members: tuple[str, ...],
    names: Mapping[str, str],
    spec: DecoderSpec,
    layer: int,
    shapes: Mapping[str, tuple[int, ...]],
) -> TensorPlace:
    parts = tuple((role, spec.name(role, layer)) for role in members)
    own = [shapes[name] for _, name in parts]
    shape: tuple[int, ...] = (sum(s[0] for s in own), *own[0][1:])
    if members[0] == "positions":  # llama.cpp requires one for each token of the context
        shape = (min(shape[0], spec.max_context), shape[1])
    if members[0] in ("q_norm", "k_norm") and spec.qk_norm == "heads":
        shape = (shape[0] // spec.head_dim, spec.head_dim)
    if members[0] == "conv":
        shape = (shape[0], shape[2])
    if members[0].startswith("experts_") and spec.experts is not None:
        shape = (spec.experts.count, shape[0] // spec.experts.count, *shape[1:])
    if members[0] == "shared_router":
        shape = shape[1:]
    if members[0] in ("decay", "skip") and isinstance(spec.mixer(layer), Mamba2):
        shape = (shape[0], 1)
    name = names[members[0].removesuffix("_bias")].format(layer=layer)
    return TensorPlace(name + _suffix(members[0]), parts, layer, shape)


def _suffix(role: str) -> str:
    if role in _BARE:
        return ""
    return ".bias" if role.endswith("_bias") else ".weight"


def turning(head_dim: int, rotary_dim: int) -> list[int]:
    """Return the order of a head's rows for llama.cpp's rotation of adjacent channels.

    In a checkpoint channel i is rotated with channel i + rotary_dim / 2; in llama.cpp 2i with
    2i + 1.

    Args:
        head_dim: channels of a head.
        rotary_dim: number of the first channels that are rotated.

    """
    half = rotary_dim // 2
    pairs = [row for i in range(half) for row in (i, i + half)]
    return pairs + list(range(rotary_dim, head_dim))
