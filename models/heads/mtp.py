"""What multi-token prediction layers inside a checkpoint have in common.

Of token p + 1 and the last stream ``h`` of token p, each after a norm of its own:

    x = product . concat(halves)
    y = a layer of the target over x
    logits = the target's LM head . rms(y; final norm)

Further steps read ``y`` in the place of ``h``. Families differ in three things, each with a key by
which a checkpoint that was trained otherwise can say so in config.json: ``edgedec_mtp_state_norm``
(``h`` is behind the target's final norm), ``edgedec_mtp_carry_norm`` (further steps read ``y``
behind the layer's), ``edgedec_mtp_token_first`` (the token's half comes first).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import TARGET_NORM, HeadSpec, Wiring
from edgedec.models.sources import TensorSource

_STATE, _CARRY, _TOKEN = (
    f"edgedec_mtp_{which}" for which in ("state_norm", "carry_norm", "token_first")
)


def head(
    kind: str,
    config: Mapping[str, Any],
    target: DecoderSpec,
    count: int,
    stored: Mapping[str, str],
    *,
    usual: bool,
) -> HeadSpec:
    """Return the first of ``count`` layers as a head of its target.

    Args:
        kind: the file that describes it.
        config: of the text decoder.
        target: the decoder; its layers that attend are like the head's.
        count: how many layers there are.
        stored: names in the checkpoint of the two norms, the product and the role ``final_norm``;
            under ``layer``, what the names of its layer begin with.
        usual: what all three keys are where config.json has none of them.

    """
    flag = Config(config).flag
    last = target.attending[-1]
    window, rope = target.windows[last], target.ropes[last]
    layer = dataclasses.replace(target, layers=1, mixers=(), windows=(window,), ropes=(rope,))
    return HeadSpec(
        kind=kind,
        taps=(target.layers,),
        layer=layer,
        target_vocab=target.vocab_size,
        carry="normed" if flag(_CARRY, default=usual) else "raw",
        join="product",
        state_first=not flag(_TOKEN, default=usual),
        fused=False,
        target_norm=flag(_STATE, default=usual),
        own_output=False,
        stored=_stored(layer, stored),
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


def _stored(layer: DecoderSpec, names: Mapping[str, str]) -> dict[str, tuple[TensorSource, ...]]:
    """Return where each tensor is, in the form that the target's have."""
    origins, ours = layer.origins(), layer.prefixes[0]
    norm, at = origins[layer.name("final_norm")], f"{ours}layers.0."

    def targets(source: TensorSource) -> tuple[TensorSource, ...]:
        if not source.name.startswith(ours):
            return (source,)
        rest = source.name.removeprefix(ours)
        return tuple(dataclasses.replace(source, name=p + rest) for p in layer.prefixes)

    found = {TARGET_NORM: targets(norm), layer.name("head"): targets(origins[layer.name("head")])}
    for name, stored in names.items():
        if name == "layer":
            continue
        if name == "final_norm":
            name = layer.name(name)
        form = TensorSource(stored)
        found[name] = (dataclasses.replace(norm, name=stored) if "norm" in name else form,)
    for name, source in origins.items():
        if source.name.startswith(at):
            own = names["layer"] + source.name.removeprefix(at)
            found[name] = (dataclasses.replace(source, name=own),)
    return found
