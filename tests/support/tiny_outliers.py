"""A decoder whose activations have outliers, as those of large models do."""

from __future__ import annotations

from edgedec.errors import CheckpointError
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.tensors import FloatArray, read
from edgedec.models.decoder import DecoderSpec


def with_outliers(arrays: dict[str, FloatArray], spec: DecoderSpec) -> dict[str, FloatArray]:
    """The same decoder with channels that are hundreds of times the others."""
    arrays = {name: array.copy() for name, array in arrays.items()}

    def move(makers: list[str], readers: list[str], made: list[int], read: list[int]) -> None:
        for name in makers:
            if name in arrays:
                arrays[name][made] *= 300
        for name in readers:
            arrays[name][:, read] /= 300

    for layer in range(spec.layers):
        names = {role: spec.name(role, layer) for role in ROLES}
        fed = [names["gate"], names["up"]] if spec.gated else [names["up"]]
        dense = spec.experts is None
        if "attention_norm" in spec.layer_norms:
            qkv = [names[role] for role in "qkv"] + (fed if spec.residual == "shared" else [])
            move([names["attention_norm"], names["attention_norm_bias"]], qkv, [3, 9], [3, 9])
        if dense and "mlp_norm" in spec.layer_norms:
            move([names["mlp_norm"], names["mlp_norm_bias"]], fed, [5], [5])
        if dense and spec.gated:
            move([names["up"], names["up_bias"]], [names["down"]], [7, 8], [7, 8])
        copies, width = spec.heads // spec.kv_heads, spec.head_dim
        heads = [head * width + 2 for head in range(copies)]  # those that read value head 0
        move([names["v"], names["v_bias"]], [names["o"]], [2], heads)
    return arrays


ROLES = (
    "q", "k", "v", "o", "gate", "up", "down", "v_bias", "up_bias", "attention_norm", "mlp_norm",
    "attention_norm_bias", "mlp_norm_bias",
)  # fmt: skip


def trained_with_outliers(checkpoint: Checkpoint) -> dict[str, FloatArray]:
    """The tensors of a trained decoder, with such channels."""
    spec = checkpoint.spec
    names = {spec.name(role, layer) for role in ROLES for layer in range(spec.layers)}
    names |= {spec.name(role) for role in ("embed", "head", "final_norm")}
    arrays = {name: read(checkpoint.tensors, name) for name in names if _is_there(checkpoint, name)}
    return with_outliers(arrays, spec)


def _is_there(checkpoint: Checkpoint, name: str) -> bool:
    try:
        return bool(checkpoint.tensors.shape(name))
    except CheckpointError:
        return False
