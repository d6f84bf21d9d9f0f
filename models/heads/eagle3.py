"""EAGLE-3 (2503.01840) and 3.1, in the configurations that its authors and three tools write.

They name the target's streams differently. A tap i is the stream before layer i here:

- ``eagle_config.eagle_aux_hidden_state_layer_ids`` (SGLang, ModelOpt) counts layers whose output is
  read, so that id i is tap i + 1;
- ``eagle_aux_hidden_state_layer_ids`` beside ``speculators_model_type`` (speculators, vLLM) is
  tap i;
- without ids it is (2, L / 2, L - 3) of L layers, as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgedec.errors import CheckpointError, UnsupportedArchitecture
from edgedec.models.config import Config
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads.head import FUSE, FUSE_NORM, HIDDEN_NORM, HeadSpec, Wiring
from edgedec.models.sources import TensorSource

INSIDE = False
_IDS = "eagle_aux_hidden_state_layer_ids"
_KINDS = ("llama", "qwen3")
_MOST_TAPS = 8
# Keys that change what a head computes and that are not computed here, with their usual values.
_REFUSED: Mapping[str, Any] = {
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "parallel_draft_step": 1,
}


def matches(config: Mapping[str, Any]) -> bool:
    """Return whether this config.json describes such a head."""
    names = config.get("architectures")
    return config.get("speculators_model_type") == "eagle3" or (
        isinstance(names, list) and any("eagle3" in str(name).lower() for name in names)
    )


def spec(config: Mapping[str, Any], target: DecoderSpec) -> HeadSpec:
    """Return the head that this config.json describes, for a target."""
    layer = dict(_section(config, "transformer_layer_config") or config)
    own = _section(config, "eagle_config")
    _refuse({**own, **config})
    kind, whole = _kind(layer), Config(layer).positive("vocab_size")
    drafted = Config(config).positive("draft_vocab_size", whole)
    of_layer = {"model_type": kind, "vocab_size": drafted, "num_hidden_layers": 1}
    c = Config({**layer, **of_layer, "tie_word_embeddings": False})
    decoder = c.decoder(qk_norm="head" if kind == "qwen3" else "")
    read = Config(config).positive("target_hidden_size", decoder.hidden)
    if (decoder.hidden, read) != (target.hidden, target.hidden):
        raise CheckpointError(
            f"the head reads states of {read} channels and has {decoder.hidden}, the target has"
            f" {target.hidden}: expected a head that was made for this target"
        )
    if drafted > target.vocab_size:
        raise CheckpointError(
            f"the head drafts {drafted} tokens, the target has {target.vocab_size}: expected a head"
            " that was made for this target"
        )
    flag = Config(config).flag
    one, each = flag("norm_before_fc"), flag("fc_norm")
    if one and each:
        raise CheckpointError("config.json: norm_before_fc and fc_norm exclude each other")
    return HeadSpec(
        kind="eagle3",
        taps=_taps(config, own, target.layers),
        layer=decoder,
        target_vocab=target.vocab_size,
        fuse_norm="all" if one else "each" if each else "",
        residual="normed" if flag("norm_before_residual") else "raw",
        carry="normed" if flag("norm_output") else "raw",
        stored=_stored(decoder),
    )


def neighbours(spec: HeadSpec, layers: int) -> Iterator[Wiring]:
    """Yield the wirings that other tools' configurations mean, or that conversions lose."""
    for shift, words in ((-1, "earlier"), (1, "later")):
        taps = tuple(tap + shift for tap in spec.taps)
        if taps[0] >= 0 and taps[-1] <= layers:
            ids = [tap - 1 for tap in taps]
            remedy = f"it reads the streams one layer {words} (eagle_config with {_IDS} {ids})"
            yield Wiring(spec.changed(taps=taps), remedy)
    normed = spec.residual == "raw"
    residual = "normed" if normed else "raw"
    remedy = f"norm_before_residual is {str(normed).lower()}"
    yield Wiring(spec.changed(residual=residual), remedy)
    normed = spec.carry == "raw"
    carry = "normed" if normed else "raw"
    yield Wiring(spec.changed(carry=carry), f"norm_output is {str(normed).lower()}", depth=2)


def _taps(config: Mapping[str, Any], own: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    ids, shift = config.get(_IDS), 0
    if ids is None:
        ids, shift = own.get(_IDS), 1
    if ids is None:
        ids, shift = [2, layers // 2, layers - 3], 0
    if (
        not isinstance(ids, list)
        or not 0 < len(ids) <= _MOST_TAPS
        or any(type(one) is not int for one in ids)
    ):
        raise CheckpointError(f"config.json: {_IDS} is {ids!r}, expected a list of layers")
    taps = tuple(one + shift for one in ids)
    if not 0 <= taps[0] <= taps[-1] <= layers or list(taps) != sorted(set(taps)):
        raise CheckpointError(
            f"config.json: the head reads the streams before layers {list(taps)}, the target has"
            f" {layers} layers: expected ascending ones from 0 to {layers}"
        )
    return taps


def _kind(layer: Mapping[str, Any]) -> str:
    kind = layer.get("model_type", "llama")
    if kind not in _KINDS:
        raise UnsupportedArchitecture(
            f"config.json: a head with a layer of {kind!r}: expected one of {', '.join(_KINDS)}"
        )
    return str(kind)


def _refuse(config: Mapping[str, Any]) -> None:
    for name, usual in _REFUSED.items():
        if config.get(name, usual) != usual:
            raise UnsupportedArchitecture(
                f"config.json: {name} is {config[name]!r}, and edgedec computes heads with"
                f" {usual!r} only"
            )


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise CheckpointError(f"config.json: {name} is {found!r}, expected an object")
    return found or {}


def _stored(layer: DecoderSpec) -> dict[str, tuple[TensorSource, ...]]:
    """Return the names that checkpoints have: the authors' ``midlayer``, others' ``layers.0``."""
    found = {
        FUSE: ("fc.weight",),
        HIDDEN_NORM: ("midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"),
        layer.name("final_norm"): ("norm.weight",),
        layer.name("head"): ("lm_head.weight",),
        FUSE_NORM.format(tap="all"): ("input_norm.weight",),
    }
    found |= {FUSE_NORM.format(tap=tap): (f"fc_norm.{tap}.weight",) for tap in range(_MOST_TAPS)}
    for name in layer.tensors():
        if name.startswith("model.layers.0."):
            rest = name.removeprefix("model.layers.0.")
            found[name] = (f"midlayer.{rest}", f"layers.0.{rest}")
    return {name: tuple(map(TensorSource, stored)) for name, stored in found.items()}
