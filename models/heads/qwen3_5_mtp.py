"""Qwen3.5's multi-token prediction layer, ``mtp.*`` in its checkpoint.

A layer of the target's with gated attention. The token's half comes first, and both states are read
behind a norm: the target's final one, then the layer's own (see ``mtp``). Embedding and LM head are
the target's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.errors import UnsupportedArchitecture
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import mtp
from edgedec.models.heads.head import HIDDEN_NORM, PRODUCT, TOKEN_NORM, HeadSpec

INSIDE = True
_COUNT = "mtp_num_hidden_layers"
_STORED = {
    HIDDEN_NORM: "mtp.pre_fc_norm_hidden.weight",
    TOKEN_NORM: "mtp.pre_fc_norm_embedding.weight",
    PRODUCT: "mtp.fc.weight",
    "final_norm": "mtp.norm.weight",
    "layer": "mtp.layers.0.",
}
neighbours = mtp.neighbours


def matches(config: Mapping[str, Any]) -> bool:
    """Return whether this config.json says that the checkpoint has such a layer."""
    known = config.get("model_type") in ("qwen3_5", "qwen3_5_text")
    return known and Config(_text(config)).count(_COUNT, 0) > 0


def spec(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the first of the layers that this config.json describes, as a head of its target."""
    text = _text(config)
    c = Config(text)
    if c.flag("mtp_use_dedicated_embeddings"):
        raise UnsupportedArchitecture(
            "config.json: mtp_use_dedicated_embeddings is true, and edgedec computes MTP layers"
            " with the target's embedding only; --no-mtp exports the target alone"
        )
    return mtp.head("qwen3_5_mtp", text, target, c.count(_COUNT), _STORED, usual=True)


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    text = config.get("text_config")
    return text if isinstance(text, Mapping) else config
