"""Granite 4: Granite 3's layers with a fused MLP; H has Mamba 2 in most, and may have experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models import granite
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import Mamba2, mixers
from edgedec.models.sources import TensorSource, slices, stacked
from edgedec.models.traits import Experts

GGUF = ("granite", "granitehybrid")

_MLP = "model.layers.{layer}.shared_mlp."
_EXPERTS = "model.layers.{layer}.block_sparse_moe."
_MIXER = "model.layers.{layer}.mamba."
_NAMES = {
    "conv": _MIXER + "conv1d.weight",
    "conv_bias": _MIXER + "conv1d.bias",
    "step_bias": _MIXER + "dt_bias",
    "skip": _MIXER + "D",
    "mix_norm": _MIXER + "norm.weight",
    "mix_out": _MIXER + "out_proj.weight",
}


def spec(config: Mapping[str, Any]) -> DecoderSpec:
    """Return the decoder that this config.json describes."""
    c = Config(config)
    shared = c.positive("shared_intermediate_size")
    experts = _experts(c, shared)
    found = granite.spec(config if experts else {**config, "intermediate_size": shared})
    of = "shared_" if experts else ""
    sources = {
        **slices(_MLP + "input_linear.weight", {f"{of}gate": shared, f"{of}up": shared}),
        f"{of}down": TensorSource(_MLP + "output_linear.weight"),
    }
    if experts:
        names = _EXPERTS + "input_linear.weight", _EXPERTS + "output_linear.weight"
        sources |= stacked(*names, experts.count, found.ffn)
        sources["router"] = TensorSource(_EXPERTS + "router.layer.weight")
    attends, kind = c.kinds(None, ("mamba", "attention")), None
    if not all(attends):
        kind = _mamba(c)
        sources |= {role: TensorSource(name) for role, name in _NAMES.items()}
        sources["decay"] = TensorSource(_MIXER + "A_log", log=True)
        fused = {"mix_in": kind.inner + kind.convolved, "mix_step": kind.heads}
        sources |= slices(_MIXER + "in_proj.weight", fused)
    turns = config.get("position_embedding_type") == "rope"
    return dataclasses.replace(
        found,
        experts=experts,
        sources=sources,
        ropes=tuple(found.rope if turns and attention else None for attention in attends),
        mixers=mixers(None if attention else kind for attention in attends),
    )


def _experts(c: Config, shared: int) -> Experts | None:
    """Return the mixture beside the MLP that every token goes through."""
    count = c.count("num_local_experts", 8)
    if not count:
        return None
    own = {"num_experts_per_tok": 2, **c.raw, "num_experts": count, "norm_topk_prob": True}
    return dataclasses.replace(Config(own).experts(), shared=shared)


def _mamba(c: Config) -> Mamba2:
    """Return the mixer that all Mamba layers have."""
    c.refuse("mamba_proj_bias", "edgedec reads Granite 4 without biases")
    if not c.flag("mamba_conv_bias", default=True):
        raise UnsupportedArchitecture(
            "config.json: mamba_conv_bias is false, and edgedec reads Granite 4 H with that bias"
        )
    inner = c.positive("mamba_expand", 2) * c.positive("hidden_size")
    heads, taps = c.positive("mamba_n_heads", 128), c.taps("mamba_d_conv", 4)
    kind = Mamba2(
        heads=heads,
        head_dim=inner // heads,
        groups=c.positive("mamba_n_groups", 1),
        channels=c.positive("mamba_d_state", 256),
        taps=taps,
    )
    stated = c.raw.get("mamba_d_head", "auto")
    if kind.inner != inner or heads % kind.groups or stated not in ("auto", kind.head_dim):
        raise CheckpointError(
            f"config.json: {inner} channels cannot be shared by {heads} heads of Mamba in"
            f" {kind.groups} groups"
        )
    return kind
