"""MiMo-7B's multi-token prediction layer (2505.07608, section 2.2), inside its checkpoint.

The state's half comes first, and both states are read before a norm (see ``mtp``). The layer is
``MiMoMTPLayers`` of the checkpoint's own modeling_mimo.py; that ``h`` comes before the norm is in
its authors' model for vLLM (mimo.py, mimo_mtp.py), which runs one step. For further steps ``y``
takes the place of ``h``, as in exllamav3. vLLM also zeroes the first pair's embedding, which the
layer itself does not, nor is it done here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import mtp
from edgedec.models.heads.head import HIDDEN_NORM, PRODUCT, TOKEN_NORM, HeadSpec

INSIDE = True
_COUNT = "num_nextn_predict_layers"
_AT = "model.mtp_layers.0."
_STORED = {
    HIDDEN_NORM: _AT + "hidden_layernorm.weight",
    TOKEN_NORM: _AT + "token_layernorm.weight",
    PRODUCT: _AT + "input_proj.weight",
    "final_norm": _AT + "final_layernorm.weight",
    "layer": _AT,
}
neighbours = mtp.neighbours


def matches(config: Mapping[str, Any]) -> bool:
    """Return whether this config.json says that the checkpoint has such a layer."""
    return config.get("model_type") == "mimo" and Config(config).count(_COUNT, 0) > 0


def spec(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the first of the layers that this config.json describes, as a head of its target."""
    count = Config(config).count(_COUNT)
    return mtp.head("mimo_mtp", config, target, count, _STORED, usual=False)
