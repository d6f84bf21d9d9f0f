"""The keys that describe a decoder, without the architecture's prefix, in both directions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgedec.export.gguf.file import ModelFile
from edgedec.models.decoder import DecoderSpec
from edgedec.models.mixers import MOST_TAPS, DeltaNet, Mamba2, Mixer, ShortConv, mixers
from edgedec.models.rope import Rope
from edgedec.models.traits import LayerSizes, Norm, Scales

Value = str | int | float | bool | list[int] | list[bool]
Keys = Mapping[str, Value]
# Fields of DecoderSpec, by name.
Traits = dict[str, Any]

# A cap too large to have an effect in float32, for architectures that always cap.
_NO_CAP = float(1 << 24)


@dataclass(frozen=True, slots=True)
class Section:
    """Some facts of a decoder.

    Attributes:
        keys: returns them as a file's keys.
        traits: returns the same facts from a file's keys, given those that were read before.

    """

    keys: Callable[[DecoderSpec], Keys]
    traits: Callable[[ModelFile, Traits], Traits]


# -- sizes ----------------------------------------------------------------------------------------


def _size_keys(spec: DecoderSpec) -> Keys:
    return {
        "vocab_size": spec.vocab_size,
        "context_length": spec.max_context,
        "embedding_length": spec.hidden,
        "block_count": spec.layers,
        "feed_forward_length": spec.ffn,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": spec.kv_heads,
        "attention.key_length": spec.head_dim,
        "attention.value_length": spec.head_dim,
        _EPSILON[spec.norm.kind]: float(spec.norm.epsilon),
    }


_EPSILON = {"layer": "attention.layer_norm_epsilon", "rms": "attention.layer_norm_rms_epsilon"}


def _sizes(file: ModelFile, read: Traits) -> Traits:
    hidden, heads = file.count("embedding_length"), file.count("attention.head_count")
    norm: Norm = read["norm"]
    epsilon = file.above_zero(_EPSILON[norm.kind])
    size = file.count("attention.key_length", hidden // max(heads, 1))
    if not heads or size < 2 or epsilon >= 1:
        raise file.wrong(
            f"it has {heads} heads of {size} channels and norms with an epsilon of {epsilon}: it is"
            " damaged"
        )
    return {
        "hidden": hidden,
        "layers": _layers(file),
        "heads": heads,
        "kv_heads": _kv_heads(file, heads),
        "head_dim": size,
        "ffn": _first(file, "feed_forward_length"),
        "max_context": file.count("context_length"),
        "norm": dataclasses.replace(norm, epsilon=epsilon),
    }


def _first(file: ModelFile, key: str) -> int:
    """Return a size; where layers have their own, that of the first."""
    sized = file.value(_NEAR_KEYS) is not None
    return file.counts_by_layer(key)[0] if sized else file.count(key)


def _layers(file: ModelFile) -> int:
    """Return the layers of the decoder; further prediction layers (MTP) follow them."""
    return max(file.count("block_count") - file.count(PREDICTING, 0), 0)


def _kv_heads(file: ModelFile, heads: int) -> int:
    """Return the key heads of the layers that attend; those of others are listed as 0."""
    if file.value(_NEAR_KEYS) is not None:
        return _first(file, _KV_HEADS)
    known = any(file.value(key) is not None for key in (_TAPS, _SSM + "conv_kernel"))
    if not known or not isinstance(file.value(_KV_HEADS), list):
        return file.count(_KV_HEADS, heads)
    counts = {count for count in file.counts_by_layer(_KV_HEADS) if count}
    if len(counts) != 1:
        raise file.unknown(f"its layers have {sorted(counts)} key heads")
    return counts.pop()


_KV_HEADS = "attention.head_count_kv"
PREDICTING = "nextn_predict_layers"
SIZES = Section(_size_keys, _sizes)


# -- what stands in attention's place -------------------------------------------------------------


def _attending_keys(spec: DecoderSpec) -> Keys:
    attends = [spec.mixer(layer) is None for layer in range(spec.layers)]
    return {_KV_HEADS: [spec.kv_heads * attention for attention in attends]}


def _conv_keys(spec: DecoderSpec) -> Keys:
    taps = next((kind.taps for kind in spec.mixers if kind is not None), 3)
    return {**_attending_keys(spec), _TAPS: taps}


def _convs(file: ModelFile, read: Traits) -> Traits:
    if 0 < file.count(_WINDOW, 0) < read["max_context"]:
        raise file.unknown("windows beside short convolutions are unknown here")
    kind = ShortConv(_taps(file, _TAPS))
    return _mixed(read, kind, file.counts_by_layer(_KV_HEADS))


def _taps(file: ModelFile, key: str) -> int:
    taps = file.count(key)
    if not 2 <= taps <= MOST_TAPS:
        raise file.wrong(f"{key} is {taps}, expected 2 to {MOST_TAPS}")
    return taps


def _mixed(read: Traits, kind: Mixer, attends: Sequence[int]) -> Traits:
    """Return the traits of a decoder with ``kind`` in the layers that do not attend."""
    ropes = zip(read["ropes"], attends, strict=True)
    return {
        "mixers": mixers(None if attention else kind for attention in attends),
        "ropes": tuple(rope if attention else None for rope, attention in ropes),
    }


_TAPS, _WINDOW = "shortconv.l_cache", "attention.sliding_window"
SHORT_CONVS = Section(_conv_keys, _convs)


def _mamba_keys(spec: DecoderSpec) -> Keys:
    kind = next(kind for kind in spec.mixers if isinstance(kind, Mamba2))
    return {
        **_attending_keys(spec),
        _SSM + "conv_kernel": kind.taps,
        _SSM + "inner_size": kind.inner,
        _SSM + "state_size": kind.channels,
        _SSM + "time_step_rank": kind.heads,
        _SSM + "group_count": kind.groups,
    }


def _mambas(file: ModelFile, read: Traits) -> Traits:
    inner, heads = (file.count(_SSM + key) for key in ("inner_size", "time_step_rank"))
    groups, state = (file.count(_SSM + key) for key in ("group_count", "state_size"))
    if not heads or inner % heads or not groups or heads % groups:
        raise file.wrong(f"{inner} channels cannot be shared by {heads} heads in {groups} groups")
    taps = _taps(file, _SSM + "conv_kernel")
    kind = Mamba2(heads, inner // heads, groups, state, taps)
    return _mixed(read, kind, file.counts_by_layer(_KV_HEADS))


_SSM = "ssm."
MAMBA = Section(_mamba_keys, _mambas)


def interval(spec: DecoderSpec) -> int:
    """Return after how many layers one attends."""
    return spec.attending[0] + 1


def _delta_keys(spec: DecoderSpec) -> Keys:
    kind = next(kind for kind in spec.mixers if isinstance(kind, DeltaNet))
    # Pairs of channels that turn with a picture's time, rows and columns: of a text, all do so
    # with the position, where these cover them.
    pairs = spec.rotary_dim // 2
    return {
        "full_attention_interval": interval(spec),
        "rope.dimension_sections": [*((pairs + more) // 3 for more in (2, 1, 0)), 0],
        _SSM + "conv_kernel": kind.taps,
        _SSM + "inner_size": kind.values,
        _SSM + "state_size": kind.key_dim,
        _SSM + "time_step_rank": kind.value_heads,
        _SSM + "group_count": kind.key_heads,
    }


def _deltas(file: ModelFile, read: Traits) -> Traits:
    inner, heads = (file.count(_SSM + key) for key in ("inner_size", "time_step_rank"))
    keys, dim = (file.count(_SSM + key) for key in ("group_count", "state_size"))
    if not keys or not heads or heads % keys or not dim or inner != heads * dim:
        raise file.wrong(
            f"{inner} channels of values cannot be shared by {heads} heads of {dim} channels, or"
            f" those by {keys} keys"
        )
    every = file.count("full_attention_interval", 4)
    if not 0 < every <= read["layers"]:
        raise file.wrong(f"one of {every} layers attends, of {read['layers']}")
    kind = DeltaNet(keys, heads, dim, dim, _taps(file, _SSM + "conv_kernel"))
    attends = [(layer + 1) % every == 0 for layer in range(read["layers"])]
    return _mixed(read, kind, attends) | {"gated_attention": True}


DELTA = Section(_delta_keys, _deltas)

# -- no positions ---------------------------------------------------------------------------------


def _turning_keys(spec: DecoderSpec) -> Keys:
    return {} if spec.rope else {_TURNING: False}


def _turning(file: ModelFile, read: Traits) -> Traits:
    return {"ropes": (None,) * read["layers"]} if file.value(_TURNING) is False else {}


# So Granite's files call it.
_TURNING = "rope.scaling.finetuned"
NOPE = Section(_turning_keys, _turning)


# -- experts that sigmoids choose, behind layers without any --------------------------------------


def _sigmoid_keys(spec: DecoderSpec) -> Keys:
    experts = spec.experts
    if experts is None:
        return {}
    return {
        "feed_forward_length": experts.dense_ffn,
        _DENSE: experts.dense_layers,
        _GATING: _SIGMOID,
    }


def _sigmoids(file: ModelFile, read: Traits) -> Traits:
    gating, dense = file.count(_GATING), file.count(_DENSE, 0)
    if gating != _SIGMOID:
        raise file.unknown(f"{_GATING} is {gating}, expected {_SIGMOID}")
    if dense >= read["layers"]:
        raise file.wrong(f"{dense} of its {read['layers']} layers are without experts")
    size = file.count("feed_forward_length")
    own = {"sigmoid": True, "dense_layers": dense, "dense_ffn": size}
    return {"experts": dataclasses.replace(read["experts"], **own)}


_DENSE, _GATING, _SIGMOID = "leading_dense_block_count", "expert_gating_func", 2
CHOSEN_BY_SIGMOID = Section(_sigmoid_keys, _sigmoids)


# -- windows --------------------------------------------------------------------------------------


def window_keys(spec: DecoderSpec) -> dict[str, Value]:
    """Return the metadata of sliding windows and of their rotary embedding."""
    window = max(spec.windows)
    if not window:
        return {}
    keys: dict[str, Value] = {
        _WINDOW: window,
        "attention.sliding_window_pattern": [int(bool(w)) for w in spec.windows],
    }
    for rope, size in zip(spec.ropes, spec.windows, strict=True):
        if rope and size:
            keys["rope.freq_base_swa"] = float(rope.theta)
    return keys


def windows(
    every: int, near_theta: float | None = None, *, usual: int = 0, scaled: bool = True
) -> Section:
    """Return the section of sliding windows.

    Args:
        every: without a pattern in the file, every so many layers one sees all.
        near_theta: base of windowed layers' rotation where the file states none; None is that of
            the others.
        usual: window of a file that states none; 0 is none. It is written as one as long as the
            context.
        scaled: windowed layers' rotation is scaled as that of the others.

    """

    def keys(spec: DecoderSpec) -> Keys:
        always: Keys = {_WINDOW: spec.max_context} if usual else {}
        return window_keys(spec) or always

    def traits(file: ModelFile, read: Traits) -> Traits:
        size, layers = file.count(_WINDOW, usual), read["layers"]
        if not 0 < size < read["max_context"]:
            return {}
        slides = _pattern(file, "attention.sliding_window_pattern", layers, every)
        base = file.above_zero("rope.freq_base", 10_000.0) if not scaled else near_theta
        stated = file.value("rope.freq_base_swa") is not None or base
        near = Rope(file.above_zero("rope.freq_base_swa", base)) if stated else None
        return {
            "windows": tuple(size if slide else 0 for slide in slides),
            "ropes": tuple(
                near if slide and near and rope else rope
                for slide, rope in zip(slides, read["ropes"], strict=True)
            ),
        }

    return Section(keys, traits)


def _pattern(file: ModelFile, key: str, layers: int, every: int) -> list[bool]:
    """Return a flag for each layer, from a list or from a period."""
    found = file.header.metadata.get(f"{file.header.architecture}.{key}", every)
    if isinstance(found, int) and not isinstance(found, bool):
        return [found == 0 or layer % found < found - 1 for layer in range(layers)]
    flags = found.tolist() if hasattr(found, "tolist") else []
    if len(flags) != layers:
        raise file.wrong(f"{key} has {len(flags)} values for {layers} layers")
    return [bool(flag) for flag in flags]


def _pattern_keys(spec: DecoderSpec) -> Keys:
    # llama.cpp requires a window: without one, it is as long as the context.
    sizes = spec.windows if any(spec.windows) else (spec.max_context, *spec.windows[1:])
    return {
        _WINDOW: max(sizes),
        "attention.sliding_window_pattern": [int(bool(size)) for size in sizes],
        "attention.rope_pattern": [int(rope is not None) for rope in spec.ropes],
    }


def _by_layer(file: ModelFile, read: Traits) -> Traits:
    layers = read["layers"]
    rotated = _pattern(file, "attention.rope_pattern", layers, 0)
    ropes = [rope if turns else None for rope, turns in zip(read["ropes"], rotated, strict=True)]
    found = {"ropes": tuple(ropes)}
    return found | windows(0).traits(file, read | found)


PATTERN = Section(_pattern_keys, _by_layer)


# -- layers of two kinds --------------------------------------------------------------------------


def near(spec: DecoderSpec, layer: int) -> bool:
    """Return whether a layer is of the kind with a window, which the last layer is not.

    A window longer than the context is not in ``windows``; then the rotation tells the kinds apart.
    """
    return bool(spec.windows[layer]) or spec.ropes[layer] != spec.ropes[-1]


def _sized_keys(spec: DecoderSpec) -> Keys:
    slides = [near(spec, layer) for layer in range(spec.layers)]
    whole = spec.at(spec.layers - 1)
    first = slides.index(True) if any(slides) else spec.layers - 1
    small, rope = spec.at(first), spec.ropes[first]
    shared = sum(spec.lender(layer) != layer for layer in range(spec.layers))
    return {
        _KV_HEADS: [spec.at(layer).kv_heads for layer in range(spec.layers)],
        "feed_forward_length": [spec.at(layer).ffn for layer in range(spec.layers)],
        "attention.key_length": whole.head_dim,
        "attention.value_length": whole.head_dim,
        _NEAR_KEYS: small.head_dim,
        "attention.value_length_swa": small.head_dim,
        "rope.dimension_count": whole.rotary_dim,
        "rope.dimension_count_swa": small.rotary_dim,
        "rope.freq_base_swa": float(rope.theta) if rope else 0.0,
        _WINDOW: max(spec.windows) or spec.max_context,
        "attention.sliding_window_pattern": slides,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": spec.per_layer_inputs,
    }


def _sized(file: ModelFile, read: Traits) -> Traits:
    layers, key = read["layers"], "attention.sliding_window_pattern"
    slides = _pattern(file, key, layers, 0)
    if slides[-1]:
        raise file.unknown(f"{key} says that its last layer has a window")
    shared, size = file.count("attention.shared_kv_layers", 0), file.count(_WINDOW)
    if shared > layers - 2 and shared:
        raise file.wrong(f"{shared} of {layers} layers without keys leave none to read")
    ffn, kv_heads = (file.counts_by_layer(one) for one in ("feed_forward_length", _KV_HEADS))
    dims = [
        (file.count(f"attention.key_length{kind}"), file.count(f"rope.dimension_count{kind}"))
        for kind in ("", "_swa")
    ]
    sizes = []
    for layer, slide in enumerate(slides):
        own = layer < layers - shared
        at = f"blk.{layer}.attn_v.weight"
        sizes.append(
            LayerSizes(
                kv_heads[layer], *dims[slide], ffn[layer],
                shares=None if own else layers - shared - (2 if slide else 1),
                keys_only=own and at not in file.tensors,
            )
        )  # fmt: skip
    window = size if 0 < size < read["max_context"] else 0
    ropes, swa = read["ropes"], Rope(file.above_zero("rope.freq_base_swa", 10_000.0))
    return {
        "windows": tuple(window if slide else 0 for slide in slides),
        "ropes": tuple(swa if slide else ropes[-1] for slide in slides),
        "sizes": tuple(sizes),
        "head_dim": dims[1][0],
        "rotary_dim": dims[1][1],
        "per_layer_inputs": file.count("embedding_length_per_layer_input", 0),
        "factors": "blk.0.layer_output_scale.weight" in file.tensors,
        "norm": dataclasses.replace(read["norm"], values=True),
    }


_NEAR_KEYS = "attention.key_length_swa"
# Of Gemma 4: heads of two sizes, last layers that read the keys of others, norms of values.
SIZED = Section(_sized_keys, _sized)


# -- scales and caps ------------------------------------------------------------------------------


def scales(*names: str) -> Section:
    """Return the section of Granite's keys for some of a decoder's scales."""

    def keys(spec: DecoderSpec) -> Keys:
        values = {
            "embed": spec.scales.embed,
            "residual": spec.scales.residual,
            "attention": spec.attention_scale,
            "logits": 1 / spec.scales.logits,  # llama.cpp divides by it
        }
        return {_SCALES[name]: values[name] for name in names}

    def traits(file: ModelFile, read: Traits) -> Traits:
        found = {name: file.above_zero(_SCALES[name]) for name in names}
        if "logits" in found:
            found["logits"] = 1 / found["logits"]
        return {"scales": dataclasses.replace(read["scales"], **found)}

    return Section(keys, traits)


_SCALES = {
    "embed": "embedding_scale",
    "residual": "residual_scale",
    "attention": "attention.scale",
    "logits": "logit_scale",
}


def caps(**usual: float) -> Section:
    """Return the section of soft caps, with those of a file that states none; 0 is none."""

    def keys(spec: DecoderSpec) -> Keys:
        found = {name: getattr(spec.scales, name) or _NO_CAP for name in usual}
        stated = (name for name in found if found[name] != _NO_CAP or usual[name])
        return {_CAPS[name]: found[name] for name in stated}

    def traits(file: ModelFile, read: Traits) -> Traits:
        found = {name: max(file.number(_CAPS[name], cap), 0.0) for name, cap in usual.items()}
        kept = {name: 0.0 if cap >= _NO_CAP else cap for name, cap in found.items()}
        return {"scales": dataclasses.replace(read["scales"], **kept)}

    return Section(keys, traits)


_CAPS = {"attention_cap": "attn_logit_softcapping", "logit_cap": "final_logit_softcapping"}


def _root_of_width(file: ModelFile, read: Traits) -> Traits:
    found: Scales = read["scales"]
    return {"scales": dataclasses.replace(found, embed=read["hidden"] ** 0.5)}


# Gemma multiplies embeddings so without a key.
WIDTH_SCALE = Section(lambda spec: {}, _root_of_width)

# Of GPT-NeoX.
SIDE_BY_SIDE = Section(
    lambda spec: {"use_parallel_residual": spec.residual == "parallel"},
    lambda file, read: {
        "residual": "sequential" if file.value("use_parallel_residual") is False else "parallel"
    },
)
