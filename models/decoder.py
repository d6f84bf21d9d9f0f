"""What a decoder is: the facts every emitter and the numpy reference work from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from edgedec.models.rope import Rope

# The names that Llama's checkpoints introduced and its relatives kept.
LLAMA_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "embed": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "head": "lm_head.weight",
        "attention_norm": "model.layers.{layer}.input_layernorm.weight",
        "mlp_norm": "model.layers.{layer}.post_attention_layernorm.weight",
        "q": "model.layers.{layer}.self_attn.q_proj.weight",
        "k": "model.layers.{layer}.self_attn.k_proj.weight",
        "v": "model.layers.{layer}.self_attn.v_proj.weight",
        "o": "model.layers.{layer}.self_attn.o_proj.weight",
        "q_bias": "model.layers.{layer}.self_attn.q_proj.bias",
        "k_bias": "model.layers.{layer}.self_attn.k_proj.bias",
        "v_bias": "model.layers.{layer}.self_attn.v_proj.bias",
        "o_bias": "model.layers.{layer}.self_attn.o_proj.bias",
        "q_norm": "model.layers.{layer}.self_attn.q_norm.weight",
        "k_norm": "model.layers.{layer}.self_attn.k_norm.weight",
        "gate": "model.layers.{layer}.mlp.gate_proj.weight",
        "up": "model.layers.{layer}.mlp.up_proj.weight",
        "down": "model.layers.{layer}.mlp.down_proj.weight",
        "gate_bias": "model.layers.{layer}.mlp.gate_proj.bias",
        "up_bias": "model.layers.{layer}.mlp.up_proj.bias",
        "down_bias": "model.layers.{layer}.mlp.down_proj.bias",
    }
)


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A pre-norm decoder with rotary embedding, grouped queries and a gated SiLU MLP.

    Attributes:
        architecture: the ``model_type`` it came from.
        hidden, ffn, layers, heads, kv_heads, head_dim: sizes, in channels or counts.
        vocab_size: rows of the embedding and of the head.
        vocab_used: rows that are tokens; the ones above are padding that never wins.
        max_context: tokens the model was trained for.
        norm_epsilon: of every RMS norm.
        rope: the rotary embedding and its scaling.
        windows: per layer, how many tokens a token sees, itself included; 0 is all.
        qkv_bias, out_bias, mlp_bias: which projections have a bias.
        qk_norm: an RMS norm over each head's query and key before the rotation.
        tied: the head is the embedding's transpose.
        names: checkpoint tensor names by role, ``{layer}`` to be filled in.

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
    norm_epsilon: float
    rope: Rope
    windows: tuple[int, ...]
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    names: Mapping[str, str] = field(default_factory=lambda: LLAMA_NAMES, compare=False)

    def name(self, role: str, layer: int = 0) -> str:
        """The checkpoint's name of a tensor; ``head`` is ``embed`` where they are tied."""
        if role == "head" and self.tied:
            role = "embed"
        return self.names[role].format(layer=layer)

    @property
    def q_size(self) -> int:
        """Channels of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Channels of all key heads (and of all value heads)."""
        return self.kv_heads * self.head_dim

    @property
    def parameters(self) -> int:
        """Numbers in the checkpoint."""
        count = 0
        for shape in self.tensors().values():
            size = 1
            for extent in shape:
                size *= extent
            count += size
        return count

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor the checkpoint must hold, with its shape (weights are [out, in])."""
        shapes: dict[str, tuple[int, ...]] = {
            self.name("embed"): (self.vocab_size, self.hidden),
            self.name("final_norm"): (self.hidden,),
        }
        if not self.tied:
            shapes[self.name("head")] = (self.vocab_size, self.hidden)
        for layer in range(self.layers):
            shapes.update((self.name(role, layer), shape) for role, shape in self._layer_shapes())
        return shapes

    def _layer_shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        outputs = {
            "q": (self.q_size, self.hidden, self.qkv_bias),
            "k": (self.kv_size, self.hidden, self.qkv_bias),
            "v": (self.kv_size, self.hidden, self.qkv_bias),
            "o": (self.hidden, self.q_size, self.out_bias),
            "gate": (self.ffn, self.hidden, self.mlp_bias),
            "up": (self.ffn, self.hidden, self.mlp_bias),
            "down": (self.hidden, self.ffn, self.mlp_bias),
        }
        for role, (rows, columns, bias) in outputs.items():
            yield role, (rows, columns)
            if bias:
                yield f"{role}_bias", (rows,)
        yield "attention_norm", (self.hidden,)
        yield "mlp_norm", (self.hidden,)
        if self.qk_norm:
            yield "q_norm", (self.head_dim,)
            yield "k_norm", (self.head_dim,)
