"""MiMo-7B's multi-token prediction layer (2505.07608, section 2.2), inside its checkpoint.

Of token p + 1 and the stream ``h`` of token p behind the target's last layer, not yet normed:

    x = input_proj . concat(rms(h; hidden_layernorm), rms(embed(token); token_layernorm))
    y = x + attention(rms(x; input_layernorm))
    y = y + mlp(rms(y; post_attention_layernorm))
    logits = lm_head . rms(y; final_layernorm)

The layer is ``MiMoMTPLayers`` of the checkpoint's own modeling_mimo.py; that ``h`` comes before the
norm is in its authors' model for vLLM (mimo.py, mimo_mtp.py), which runs one step. For further
steps ``y`` takes the place of ``h``, as in exllamav3. vLLM also zeroes the first pair's embedding,
which the layer itself does not, nor is it done here. Embedding and LM head are the target's.

A checkpoint that was trained otherwise can say so in config.json: ``edgedec_mtp_state_norm`` (``h``
is behind the final norm), ``edgedec_mtp_carry_norm`` (further steps read the normed ``y``),
``edgedec_mtp_token_first`` (the token's half comes first).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import (
    HIDDEN_NORM,
    PRODUCT,
    TARGET_NORM,
    TOKEN_NORM,
    HeadSpec,
    Wiring,
)

INSIDE = True
_COUNT = "num_nextn_predict_layers"
_STATE, _CARRY, _TOKEN = (
    f"edgedec_mtp_{which}" for which in ("state_norm", "carry_norm", "token_first")
)
_PREFIX = "model.mtp_layers.0"


def matches(config: Mapping[str, Any]) -> bool:
    """Return whether this config.json says that the checkpoint has such a layer."""
    return config.get("model_type") == "mimo" and Config(config).count(_COUNT, 0) > 0


def spec(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the first of the layers that this config.json describes, as a head of its target."""
    c = Config(config)
    count = c.count(_COUNT)
    layer = dataclasses.replace(
        target, layers=1, windows=target.windows[:1], ropes=target.ropes[:1], sources={}
    )
    return HeadSpec(
        kind="mimo_mtp",
        taps=(target.layers,),
        layer=layer,
        target_vocab=target.vocab_size,
        carry="normed" if c.flag(_CARRY) else "raw",
        join="product",
        state_first=not c.flag(_TOKEN),
        fused=False,
        target_norm=c.flag(_STATE),
        own_output=False,
        stored=_stored(layer),
        note=f"the first of {count} MTP layers, which drafts alone" if count > 1 else "",
    )


def neighbours(spec: HeadSpec, layers: int) -> Iterator[Wiring]:
    """Yield the wirings of other families' MTP layers."""

    def said(name: str, value: bool) -> str:
        return f"{name} is {str(value).lower()}"

    normed = not spec.target_norm
    yield Wiring(spec.changed(target_norm=normed), said(_STATE, normed))
    yield Wiring(spec.changed(state_first=not spec.state_first), said(_TOKEN, spec.state_first))
    normed = spec.carry == "raw"
    carry = "normed" if normed else "raw"
    yield Wiring(spec.changed(carry=carry), said(_CARRY, normed), depth=2)


def _stored(layer: DecoderSpec) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {
        HIDDEN_NORM: (f"{_PREFIX}.hidden_layernorm.weight",),
        TOKEN_NORM: (f"{_PREFIX}.token_layernorm.weight",),
        PRODUCT: (f"{_PREFIX}.input_proj.weight",),
        layer.name("final_norm"): (f"{_PREFIX}.final_layernorm.weight",),
        TARGET_NORM: ("model.norm.weight",),
        layer.name("head"): (layer.name("head"),),
    }
    for name in layer.tensors():
        if name.startswith("model.layers.0."):
            found[name] = (f"{_PREFIX}.{name.removeprefix('model.layers.0.')}",)
    return found
