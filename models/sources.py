"""Canonical tensors: the names that emitters use, and where a checkpoint stores each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

# Llama's checkpoints introduced these names and its relatives kept them, so for those a
# canonical tensor is a stored one. Weights are [out, in]; norm weights are what multiplies.
CANONICAL: Mapping[str, str] = MappingProxyType(
    {
        "embed": "model.embed_tokens.weight",
        "positions": "model.embed_positions.weight",
        "final_norm": "model.norm.weight",
        "final_norm_bias": "model.norm.bias",
        "head": "lm_head.weight",
        "attention_norm": "model.layers.{layer}.input_layernorm.weight",
        "attention_norm_bias": "model.layers.{layer}.input_layernorm.bias",
        "attention_post_norm": "model.layers.{layer}.self_attn.post_norm.weight",
        "attention_post_norm_bias": "model.layers.{layer}.self_attn.post_norm.bias",
        "mlp_norm": "model.layers.{layer}.post_attention_layernorm.weight",
        "mlp_norm_bias": "model.layers.{layer}.post_attention_layernorm.bias",
        "mlp_post_norm": "model.layers.{layer}.mlp.post_norm.weight",
        "mlp_post_norm_bias": "model.layers.{layer}.mlp.post_norm.bias",
        "q": "model.layers.{layer}.self_attn.q_proj.weight",
        "k": "model.layers.{layer}.self_attn.k_proj.weight",
        "v": "model.layers.{layer}.self_attn.v_proj.weight",
        "o": "model.layers.{layer}.self_attn.o_proj.weight",
        "q_bias": "model.layers.{layer}.self_attn.q_proj.bias",
        "k_bias": "model.layers.{layer}.self_attn.k_proj.bias",
        "v_bias": "model.layers.{layer}.self_attn.v_proj.bias",
        "o_bias": "model.layers.{layer}.self_attn.o_proj.bias",
        "attention_gate": "model.layers.{layer}.self_attn.gate.weight",
        "q_norm": "model.layers.{layer}.self_attn.q_norm.weight",
        "k_norm": "model.layers.{layer}.self_attn.k_norm.weight",
        "gate": "model.layers.{layer}.mlp.gate_proj.weight",
        "up": "model.layers.{layer}.mlp.up_proj.weight",
        "down": "model.layers.{layer}.mlp.down_proj.weight",
        # Of inputs that each layer has besides the residual stream.
        "per_layer_table": "model.embed_tokens_per_layer.weight",
        "per_layer_in": "model.per_layer_model_projection.weight",
        "per_layer_in_norm": "model.per_layer_projection_norm.weight",
        "per_layer_gate": "model.layers.{layer}.per_layer_input_gate.weight",
        "per_layer_out": "model.layers.{layer}.per_layer_projection.weight",
        "per_layer_norm": "model.layers.{layer}.post_per_layer_input_norm.weight",
        "factor": "model.layers.{layer}.layer_scalar",
        # Of what may stand in attention's place.
        "mix_in": "model.layers.{layer}.conv.in_proj.weight",
        "conv": "model.layers.{layer}.conv.conv.weight",
        "conv_bias": "model.layers.{layer}.conv.conv.bias",
        "mix_gate": "model.layers.{layer}.mixer.gate.weight",
        "mix_beta": "model.layers.{layer}.mixer.beta.weight",
        "mix_step": "model.layers.{layer}.mixer.step.weight",
        "step_bias": "model.layers.{layer}.mixer.step.bias",
        "decay": "model.layers.{layer}.mixer.decay",
        "skip": "model.layers.{layer}.mixer.skip",
        "mix_norm": "model.layers.{layer}.mixer.norm.weight",
        "mix_out": "model.layers.{layer}.conv.out_proj.weight",
        # Of a sparse mixture; the matrices of its experts are stacked.
        "router": "model.layers.{layer}.mlp.gate.weight",
        "probs_bias": "model.layers.{layer}.mlp.probs.bias",
        "experts_gate": "model.layers.{layer}.mlp.experts.gate_proj.weight",
        "experts_up": "model.layers.{layer}.mlp.experts.up_proj.weight",
        "experts_down": "model.layers.{layer}.mlp.experts.down_proj.weight",
        "shared_router": "model.layers.{layer}.mlp.shared.router.weight",
        "shared_gate": "model.layers.{layer}.mlp.shared.gate_proj.weight",
        "shared_up": "model.layers.{layer}.mlp.shared.up_proj.weight",
        "shared_down": "model.layers.{layer}.mlp.shared.down_proj.weight",
        "gate_bias": "model.layers.{layer}.mlp.gate_proj.bias",
        "up_bias": "model.layers.{layer}.mlp.up_proj.bias",
        "down_bias": "model.layers.{layer}.mlp.down_proj.bias",
    }
)


@dataclass(frozen=True, slots=True)
class TensorSource:
    """A canonical tensor's name and form in a checkpoint.

    Attributes:
        name: of the stored tensor, with ``{layer}``; with ``{part}`` there are several of
            equal size, one under the other.
        parts: how many.
        stack: matrices of a stored tensor of three axes, which lie one under the other here.
        rows: of the stored tensor as a whole where others share it; 0 where it is alone.
        start: the first of its rows (columns where ``transposed``) that are this tensor's.
        group: rows that lie together; 0 is all of them.
        step: rows from the start of a group to the start of the next.
        pairs: rows of a head whose neighbours are rotated together, where the canonical tensor has
            the first of all pairs, then the second; 0 if they are stored so.
        transposed: stored as ``[in, out]``.
        plus: what is added to each number (Gemma stores norm weights less 1).
        log: stored as the logarithm of its negative (the decay of a state space).

    """

    name: str
    parts: int = 1
    stack: int = 0
    rows: int = 0
    start: int = 0
    group: int = 0
    step: int = 0
    pairs: int = 0
    transposed: bool = False
    plus: float = 0.0
    log: bool = False

    def at(self, layer: int) -> TensorSource:
        """Return the source of one layer's tensor."""
        return dataclasses.replace(self, name=self.name.replace("{layer}", str(layer)))

    def stored(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return names and shapes of the stored tensors behind one of ``shape``."""
        rows = self.rows or shape[0] // self.parts
        extents = (rows, *shape[1:])
        extents = extents[::-1] if self.transposed else extents
        if self.stack:
            extents = (self.stack, rows // self.stack, *shape[1:])
        return {self._part(part): extents for part in range(self.parts)}

    def runs(self, start: int, stop: int, length: int) -> Iterator[tuple[str, int, int]]:
        """Yield the stored tensors behind rows ``start`` to ``stop``, with first row and end.

        ``length`` is the number of rows of the canonical tensor.
        """
        size = length // self.parts
        together = self.group or size
        while start < stop:
            part, row = divmod(start, size)
            group, offset = divmod(row, together)
            count = min(stop - start, together - offset)
            first = self.start + group * self.step + offset
            if self.pairs:
                head, place = divmod(row, self.pairs)
                second, pair = divmod(place, self.pairs // 2)
                first, count = self.start + head * self.pairs + 2 * pair + second, 1
            yield self._part(part), first, first + count
            start += count

    def _part(self, part: int) -> str:
        return self.name.replace("{part}", str(part))


def slices(name: str, sizes: Mapping[str, int], **form: bool) -> dict[str, TensorSource]:
    """Return sources of roles whose rows follow one another in one stored tensor."""
    total, start, found = sum(sizes.values()), 0, {}
    for role, size in sizes.items():
        found[role] = TensorSource(name, rows=total, start=start, **form)
        start += size
    return found


def stacked(name: str, down: str, count: int, size: int) -> dict[str, TensorSource]:
    """Return sources of experts in two tensors: ``name`` has gate and up of each, then the next."""
    gate = TensorSource(name, stack=count, rows=2 * count * size, group=size, step=2 * size)
    return {
        "experts_gate": gate,
        "experts_up": dataclasses.replace(gate, start=size),
        "experts_down": TensorSource(down, stack=count),
    }


def experts(count: int) -> dict[str, TensorSource]:
    """Return sources of a mixture whose experts are stored one by one."""
    name = "model.layers.{layer}.mlp.experts.{part}."
    return {
        f"experts_{role}": TensorSource(f"{name}{role}_proj.weight", parts=count)
        for role in ("gate", "up", "down")
    }
