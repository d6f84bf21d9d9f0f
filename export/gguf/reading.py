"""Reads a decoder and its tensors back from a GGUF file, by the table that writes them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.export.checkpoint import check_finite
from edgedec.export.gguf.architectures import Architecture, usual_scale
from edgedec.export.gguf.file import BLOCKS_OF_32, ModelFile
from edgedec.export.gguf.known import known_as
from edgedec.export.gguf.metadata import model_keys, rope_of
from edgedec.export.gguf.naming import FUSED_QKV, LLAMA_LAYOUT, QKV_STEM, TensorPlace
from edgedec.export.gguf.pieces import columns, exchanged, pieces, places
from edgedec.export.gguf.sections import PREDICTING, SIZES, Traits
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec
from edgedec.models.traits import Experts, Norm, QkNorm, Scales

# Keys that may differ from what would be written: their facts are in the tensors' shapes, or they
# were read as they are, a context with the scaling of its rotation, the lists with each layer.
_FREE = (
    "vocab_size", "feed_forward_length", "expert_feed_forward_length", "context_length",
    "attention.head_count_kv", "attention.sliding_window_pattern", "attention.rope_pattern",
)  # fmt: skip
# The largest step of a number in 32 bits, relative to it.
_CLOSE = 2e-7


def decoder_of(file: ModelFile) -> tuple[DecoderSpec, Architecture]:
    """Return the decoder in a file, and its architecture.

    Raises:
        UnsupportedArchitecture: nothing here writes such a file.
        CheckpointError: it is damaged.

    """
    found = known_as(file.header.architecture)
    if found is None:
        name = one_line(file.header.architecture)
        raise file.unknown(f"its architecture {name!r} cannot be read back")
    model_type, architecture = found[0], _as_stored(file, found[1])
    spec = _spec(file, architecture, model_type)
    _check_sizes(file, spec)
    if lacking := architecture.lacking(spec):
        raise file.unknown(f"a {architecture.name} with {lacking} is unknown here")
    _check_keys(file, spec, architecture)
    _check_tensors(file, spec, architecture)
    return spec, architecture


def _as_stored(file: ModelFile, architecture: Architecture) -> Architecture:
    """Return an architecture with query, key and value in one tensor, if the file has them so."""
    fused, names = architecture.layout.fused, architecture.layout.names
    if (
        QKV_STEM in {*fused, *names.values()}
        or f"{QKV_STEM.format(layer=0)}.weight" not in file.tensors
    ):
        return architecture
    layout = dataclasses.replace(architecture.layout, fused={**FUSED_QKV, **fused})
    return dataclasses.replace(architecture, layout=layout)


def _spec(file: ModelFile, architecture: Architecture, model_type: str) -> DecoderSpec:
    if architecture.experts is None and file.count("expert_count", 0):
        raise file.unknown(f"a {architecture.name} with a mixture of experts is unknown here")
    norm = Norm(0.0, architecture.norm, architecture.placement, bias=_has(file, "final_norm_bias"))
    read: Traits = {"norm": norm, "scales": Scales(), "residual": architecture.residuals[0]}
    read |= SIZES.traits(file, read)
    if not 0 < read["layers"] <= len(file.tensors):
        raise file.wrong(
            f"it says that it has {read['layers']} layers, and has {len(file.tensors)} tensors"
        )
    read |= _rotation(file, read, architecture) | _of_tensors(file, read, architecture)
    for section in architecture.sections:
        read |= section.traits(file, read)
    spec = DecoderSpec(architecture=model_type, **read)
    if "attention" in architecture.scales:
        return spec
    own = architecture.attention(spec)
    if own == usual_scale(spec):
        return spec
    return dataclasses.replace(spec, scales=dataclasses.replace(spec.scales, attention=own))


def _rotation(file: ModelFile, read: Traits, architecture: Architecture) -> Traits:
    layers = read["layers"]
    found: Traits = {"windows": (0,) * layers}
    if architecture.learned:
        return found | {"ropes": (None,) * layers, "rotary_dim": 0}
    dim, rope = rope_of(file, read["head_dim"], architecture)
    skips = architecture.skips
    ropes = tuple(None if skips and (at + 1) % skips == 0 else rope for at in range(layers))
    longest = rope.longest_text(read["max_context"])
    return found | {"ropes": ropes, "rotary_dim": dim, "max_context": longest}


def _of_tensors(file: ModelFile, read: Traits, architecture: Architecture) -> Traits:
    """Return what a file's tensors say by being there, or by their shape."""
    rows = file.shape("token_embd.weight")[0]
    found: Traits = {
        "vocab_size": rows,
        "vocab_used": rows,
        "activation": architecture.activations[0],
        "gated": architecture.gated,
        "tied": not _has(file, "head") or _same_head(file),
        "qkv_bias": _has(file, "q_bias", architecture),
        "out_bias": _has(file, "o_bias", architecture),
        "mlp_bias": _has(file, "up_bias", architecture),
        "qk_norm": _qk_norm(file, architecture),
        "position_rows": file.shape("position_embd.weight")[0] if architecture.learned else 0,
    }
    if "shared" in architecture.residuals and not _has(file, "mlp_norm"):
        found["residual"] = "shared"
    shared = architecture.shared
    if architecture.experts is not None and file.count("expert_count", 0 if shared else None):
        count, used = file.count("expert_count"), file.count("expert_used_count")
        beside = file.count("expert_shared_feed_forward_length") if shared else 0
        gated = bool(beside) and _has(file, "shared_router", architecture)
        found["experts"] = Experts(count, used, architecture.experts, beside, gated)
        found["ffn"] = file.count("expert_feed_forward_length", read["ffn"])
    return found


def _has(file: ModelFile, role: str, architecture: Architecture | None = None) -> bool:
    """Return whether a file has a role's tensor, in some layer or outside the layers."""
    layout = architecture.layout if architecture else LLAMA_LAYOUT
    layers = file.count("block_count", 1) if architecture and architecture.mixer else 1
    return any(layout.stored(role, layer) in file.tensors for layer in range(layers))


def _qk_norm(file: ModelFile, architecture: Architecture) -> QkNorm:
    kinds: list[QkNorm] = [kind for kind in architecture.qk_norms if kind]
    return kinds[0] if kinds and _has(file, "q_norm", architecture) else ""


def _same_head(file: ModelFile) -> bool:
    """Return whether the head is a copy of the embedding, as llama.cpp requires for some."""
    head, embedding = (file.tensors[f"{name}.weight"] for name in ("output", "token_embd"))
    if (head.shape, head.type) != (embedding.shape, embedding.type):
        return False
    rows = head.rows
    step = max(_COMPARED_BYTES * rows // head.bytes, 1)
    return all(
        np.array_equal(
            file.raw(head.name, start, min(start + step, rows)),
            file.raw(embedding.name, start, min(start + step, rows)),
        )
        for start in range(0, rows, step)
    )


_COMPARED_BYTES = 1 << 22


def _check_sizes(file: ModelFile, spec: DecoderSpec) -> None:
    """Refuse sizes that no decoder has, before they are multiplied."""
    for at in map(spec.at, range(spec.layers if spec.sizes else 1)):
        if at.kv_heads < 1 or at.heads % at.kv_heads:
            raise file.wrong(f"{at.heads} query heads cannot share {at.kv_heads} key heads")
        turned = at.rotary_dim
        if at.head_dim < 2 or at.head_dim % 2 or turned % 2 or turned > at.head_dim:
            raise file.wrong(f"{turned} channels of {at.head_dim} of a head cannot be rotated")
        if any(at.ropes) and turned < 2:
            raise file.wrong("no channel of a head is rotated")
    if spec.experts and file.count("expert_group_count", 0) > 1:
        raise file.unknown("experts that are chosen by groups are unknown here")
    if spec.experts and not 0 < spec.experts.used <= spec.experts.count:
        raise file.wrong(f"a token uses {spec.experts.used} experts of {spec.experts.count}")


def _check_keys(file: ModelFile, spec: DecoderSpec, architecture: Architecture) -> None:
    """Refuse a key that says something else than what was read."""
    prefix = f"{architecture.name}."
    for key, meant in model_keys(spec, architecture).items():
        name = key.removeprefix(prefix)
        found = file.value(name)
        if found is None or name in _FREE:
            continue
        if name == "block_count":  # the further ones are left out
            meant = spec.layers + file.count(PREDICTING, 0)
        if isinstance(meant, float) and isinstance(found, int | float):
            same = math.isclose(meant, found, rel_tol=_CLOSE)
        else:
            same = meant == found
        if not same:
            raise file.unknown(f"its {name} is {one_line(str(found))}, which is read as {meant}")


def _check_tensors(file: ModelFile, spec: DecoderSpec, architecture: Architecture) -> None:
    """Refuse a file with a tensor that is missing, has another shape, or has no meaning here."""
    file.check_types()
    constants = architecture.constants(spec)
    left = set(file.tensors) - set(constants) - set(architecture.rope_factors)
    left -= {"output.weight"} if spec.tied else set()
    further = range(spec.layers, spec.layers + file.count(PREDICTING, 0))
    left -= {name for name in left if name.startswith(tuple(f"blk.{at}." for at in further))}
    for place in architecture.layout.places(spec):
        found = file.shape(place.name)
        if _without_ones(found) != _without_ones(place.shape):
            raise file.wrong(f"{place.name} is {list(found)}, expected {list(place.shape)}")
        left.discard(place.name)
    for name, values in constants.items():
        if name in file.tensors and not np.array_equal(file.read(name), values):
            raise file.unknown(f"its tensor {name} has an effect that is unknown here")
    if left:
        raise file.unknown(f"its tensor {one_line(min(left))} is unknown here")


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Return extents without those of 1 in front, which llama.cpp's quantised files leave out."""
    return tuple(itertools.dropwhile(lambda extent: extent == 1, shape))


class GgufTensors:
    """The canonical tensors of a decoder in a GGUF file, dequantised when they are read.

    Attributes:
        file: the file.
        files: names of its parts.
        dtypes: types of its matrices, as GGUF calls them.

    Raises:
        CheckpointError: when a row that is read contains NaN or infinity, or is no longer there.

    """

    def __init__(self, file: ModelFile, spec: DecoderSpec, architecture: Architecture) -> None:
        self.file, self._spec, self._architecture = file, spec, architecture
        self.files = frozenset(part.name for part in file.parts)
        self.dtypes = frozenset(t.type for t in file.tensors.values() if len(t.shape) > 1)
        self._shapes = spec.tensors()
        self._at = dict(_origins(architecture.layout.places(spec), spec))

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._shapes:
            raise self.file.wrong(f"the decoder has no tensor {name}")
        return self._shapes[name]

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        def read(stored: str, first: int, last: int) -> tuple[FloatArray, ...]:
            shape = self.shape(name)
            if len(shape) == 1 or len(self.file.shape(stored)) == 1:
                whole = self.file.read(stored).reshape(-1, *shape[1:])
                return (whole[first:last],)
            return (self.file.rows(stored, first, last),)

        (found,) = self._in_order(name, start, stop, read)
        check_finite(name, found)
        return found.reshape(-1, *self.shape(name)[1:])

    def fits(self, name: str, bits: int, block_size: int) -> bool:
        """See ``HoldsBlocks``."""
        needed = BLOCKS_OF_32.get(self.file.tensors[self._at[name][1].name].type)
        return needed is not None and needed <= bits and block_size == 32

    def numbers(self, name: str, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
        """See ``HoldsBlocks``."""
        whole, scales = self._in_order(name, start, stop, self.file.numbers)
        check_finite(name, scales)
        return whole, scales

    def _in_order(
        self,
        name: str,
        start: int,
        stop: int,
        read: Callable[[str, int, int], tuple[FloatArray, ...]],
    ) -> tuple[FloatArray, ...]:
        """Return rows as a checkpoint orders them, of arrays of rows of the file."""
        role, place, before = self._at[name]
        stored, spec = place.name, self._spec
        if order_of := pieces(spec, tuple(role for role, _ in place.parts), place.layer):
            runs = places(order_of, role, start, stop)
            parts = [read(stored, first, last) for first, last in runs]
            return tuple(np.concatenate(each) for each in zip(*parts, strict=True))
        if groups := columns(spec, role, place.layer):
            back = np.argsort(groups)
            return tuple(exchanged(part, back.tolist()) for part in read(stored, start, stop))
        order = self._architecture.order(spec, role)
        size, rows = len(order), self.shape(name)[0]
        stop = min(stop, rows)
        # Whole heads, since rows of one are exchanged.
        first, last = start - start % size, min(stop + -stop % size, rows)
        back = np.argsort(order)
        found = []
        for part in read(stored, before + first, before + last):
            heads = part.reshape(-1, size, *part.shape[1:])
            found.append(heads[:, back].reshape(part.shape)[start - first : stop - first])
        return tuple(found)


def _origins(
    places: Iterable[TensorPlace], spec: DecoderSpec
) -> Iterable[tuple[str, tuple[str, TensorPlace, int]]]:
    """Yield each canonical tensor's role, the file's tensor and its first row there."""
    shapes: dict[str, Any] = spec.tensors()
    for place in places:
        first = 0
        for role, name in place.parts:
            if name != spec.name("embed") or role == "embed":  # not a copy as a head
                yield name, (role, place, first)
            first += shapes[name][0]
