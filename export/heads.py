"""Reads a head's checkpoint: its configuration, weights, and the tokens it drafts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.errors import CheckpointError
from edgedec.export.checkpoint import Checkpoint, check_finite, locate, not_used, read_json
from edgedec.export.safetensors import SafetensorsFile
from edgedec.export.tensors import CanonicalTensors, ChosenRows, FloatArray, TensorReader
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import HeadSpec, head_for, head_inside
from edgedec.models.heads.head import TARGET_NORM
from edgedec.models.sources import TensorSource

_log = logging.getLogger("edgedec")
_OFFSETS, _ORDER = "d2t", "masked_embedding.token_ordering"
# What says which tokens a head drafts, a copy of the target's embedding, and tables.
_KNOWN = re.compile(rf"^(d2t|t2d)$|^{_ORDER}$|embed_tokens\.weight$|rotary_emb\.")


@dataclass(frozen=True, slots=True)
class HeadCheckpoint:
    """A head in a folder, which may be that of its target.

    Attributes:
        path: the folder, which may be the target's.
        spec: the head it describes, for the target.
        tensors: its weights by canonical name.
        ids: the target's ids of the tokens that it drafts, ascending, ``[draft vocabulary]``; of a
            head with clusters, in their order.

    """

    path: Path
    spec: HeadSpec
    tensors: TensorReader
    ids: npt.NDArray[np.int64]

    @classmethod
    def open(cls, path: Path, target: DecoderSpec) -> HeadCheckpoint:
        """Read the configuration and the headers, and check that they fit the target.

        Raises:
            CheckpointError: something is missing or inconsistent.
            UnsupportedArchitecture: an unknown kind of head.

        """
        if not path.is_dir():
            raise CheckpointError(f"{path} is not a folder: give the folder of a head")
        spec = head_for(read_json(path / "config.json"), target)
        if not (path / "model.safetensors").exists() and (path / "pytorch_model.bin").exists():
            raise CheckpointError(
                f"{path}: pytorch_model.bin is a pickle, which edgedec does not open: save its"
                " tensors with safetensors.torch.save_file as model.safetensors"
            )
        tensors = HeadTensors(path, spec)
        note = "; ".join(filter(None, [spec.note, *not_used(tensors.unread())]))
        return cls(path, spec.changed(note=note), tensors, _ids(path, tensors.files, spec))

    @classmethod
    def inside(cls, target: Checkpoint) -> HeadCheckpoint | None:
        """Return the head that a target's checkpoint carries; None if it has none.

        Tools that tune a model often leave the head's tensors out and its field in config.json.

        Raises:
            CheckpointError: some of its tensors are missing, or do not fit.

        """
        spec = head_inside(target.config, target.spec)
        if spec is None:
            return None
        own = spec.tensors().keys() - {TARGET_NORM}
        names = {one.name for name in own for one in spec.stored[name]}
        if not names & locate(target.path).keys():
            _log.warning(
                "%s: config.json says that it can draft for itself, and the files have no tensor"
                " of that: exported without a head", target.path,
            )  # fmt: skip
            return None
        try:
            tensors = HeadTensors(target.path, spec)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; --no-mtp exports the target alone") from None
        return cls(target.path, spec, tensors, _ids(target.path, tensors.files, spec))

    def drafting(self, ids: Sequence[int], note: str) -> HeadCheckpoint:
        """Return a head that drafts these tokens of the target's alone, with a note for the user.

        It gets their rows of the target's LM head as a matrix of its own.
        """
        whole, count = self.spec.layer, len(ids)
        layer = replace(whole, vocab_size=count, vocab_used=count, tied=False)
        said = "; ".join(filter(None, [self.spec.note, note]))
        spec = self.spec.changed(layer=layer, own_output=True, note=said)
        tensors = ChosenRows(self.tensors, layer.name("head"), whole.name("head"), ids)
        return HeadCheckpoint(self.path, spec, tensors, np.array(ids, np.int64))


class HeadTensors:
    """The canonical tensors of a head, as a ``TensorReader``.

    Raises:
        CheckpointError: immediately for a missing tensor or a wrong shape, and when a row that is
            read contains NaN or infinity.

    """

    def __init__(self, path: Path, spec: HeadSpec) -> None:
        self.files, self._needed = locate(path), spec.tensors()
        # A neighbouring wiring reads tensors that the head itself does not.
        origins = {name: self._origin(sources) for name, sources in spec.stored.items()}
        for name, shape in self._needed.items():
            for stored, extents in origins[name].stored(shape).items():
                if stored not in self.files:
                    raise CheckpointError(f"{path} has no tensor {spec.stored[name][0].name}")
                if self.files[stored].shape(stored) != extents:
                    raise CheckpointError(
                        f"{path}: {stored} is {list(self.files[stored].shape(stored))}, expected"
                        f" {list(extents)} by config.json"
                    )
        there = {name: one for name, one in origins.items() if one.name in self.files}
        alone = {name: self.files[one.name].shape(one.name) for name, one in there.items()}
        self._canonical = CanonicalTensors(_Files(self.files), alone | self._needed, there)
        self._origins = there

    def unread(self) -> list[str]:
        """Return the tensors of a head's own files that it does not read, by name."""
        used = {stored for name, shape in self._needed.items()
                for stored in self._origins[name].stored(shape)}  # fmt: skip
        return sorted(name for name in self.files.keys() - used if not _KNOWN.search(name))

    def _origin(self, sources: Sequence[TensorSource]) -> TensorSource:
        return next((one for one in sources if one.name in self.files), sources[0])

    def shape(self, name: str) -> tuple[int, ...]:
        return self._canonical.shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        values = self._canonical.rows(name, start, stop)
        check_finite(self._origins[name].name, values)
        return values


@dataclass(frozen=True, slots=True)
class _Files:
    """Stored tensors by their own names."""

    where: Mapping[str, SafetensorsFile]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.where[name].shape(name)

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        values: FloatArray = self.where[name].rows(name, start, stop).astype(np.float32)
        return values


def _ids(path: Path, files: Mapping[str, SafetensorsFile], spec: HeadSpec) -> npt.NDArray[np.int64]:
    """Return the target's ids: ``d2t`` holds what is to be added to a token of the head."""
    count, vocab = spec.layer.vocab_size, spec.target_vocab
    own: npt.NDArray[np.int64] = np.arange(count, dtype=np.int64)
    if spec.routes is not None:
        ordered = files[_ORDER].integers(_ORDER).reshape(-1) if _ORDER in files else own[:0]
        if not np.array_equal(np.sort(ordered), own):
            raise CheckpointError(f"{path}: expected a tensor {_ORDER} with each of {count} tokens")
        return ordered
    if _OFFSETS not in files:
        if count == vocab:
            return own
        raise CheckpointError(
            f"{path} has no tensor {_OFFSETS}, and drafts {count} of {vocab} tokens"
        )
    offsets = files[_OFFSETS].integers(_OFFSETS).reshape(-1)
    if len(offsets) != count:
        raise CheckpointError(f"{path}: {_OFFSETS} has {len(offsets)} entries, expected {count}")
    ids: npt.NDArray[np.int64] = own + offsets
    if ids.min() < 0 or ids.max() >= vocab or (np.diff(ids) <= 0).any():
        raise CheckpointError(
            f"{path}: {_OFFSETS} names tokens that do not ascend from 0 to {vocab - 1}: expected"
            " offsets, not ids"
        )
    return ids
