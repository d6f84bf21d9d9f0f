"""What llama.cpp calls the tensors of a decoder, and in which order it wants their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from edgedec.models.decoder import DecoderSpec
from edgedec.models.sources import CANONICAL

# Role -> name, for the architectures that follow Llama. Biases end in .bias instead.
LLAMA_NAMES: Mapping[str, str] = MappingProxyType(
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
        "gate": "blk.{layer}.ffn_gate",
        "up": "blk.{layer}.ffn_up",
        "down": "blk.{layer}.ffn_down",
    }
)


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of a GGUF file.

    Attributes:
        name: in the file.
        parts: canonical names; their rows stand one after the other.
        role: of the first part.
        layer: 0 for what belongs to none.
        shape: in numpy's order, rows first.

    """

    name: str
    parts: tuple[str, ...]
    role: str
    layer: int
    shape: tuple[int, ...]


def places(
    spec: DecoderSpec, fused: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> Iterator[Place]:
    """Every tensor of a decoder, embedding first.

    Args:
        spec: the decoder.
        fused: by role, the roles whose tensors are one in the file, itself first.

    """
    shapes = spec.tensors()
    swallowed = {role for roles in fused.values() for role in roles[1:]}
    for role, template in CANONICAL.items():
        for layer in range(spec.layers if "{layer}" in template else 1):
            canonical = template.format(layer=layer)
            if role in swallowed or canonical not in shapes:
                continue
            parts = tuple(spec.name(part, layer) for part in fused.get(role, (role,)))
            rows = sum(shapes[part][0] for part in parts)
            shape = (rows, *shapes[canonical][1:])
            yield Place(_name(role, layer), parts, role, layer, shape)


def _name(role: str, layer: int) -> str:
    plain = role.removesuffix("_bias")
    suffix = ".weight" if plain == role else ".bias"
    return LLAMA_NAMES[plain].format(layer=layer) + suffix


def turning(heads_of_rows: int, rotary_dim: int) -> list[int]:
    """The order of a head's rows for llama.cpp's rotation of neighbours.

    Channel i of a checkpoint turns with channel i + rotary_dim / 2; there 2i turns with 2i + 1.

    Args:
        heads_of_rows: channels of a head.
        rotary_dim: the first of them, which turn.

    """
    half = rotary_dim // 2
    pairs = [row for i in range(half) for row in (i, i + half)]
    return pairs + list(range(rotary_dim, heads_of_rows))
