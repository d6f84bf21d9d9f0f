"""Reads a head's checkpoint: its configuration, weights, and the tokens it drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edgedec.errors import CheckpointError
from edgedec.export.checkpoint import locate, read_json
from edgedec.export.safetensors import SafetensorsFile
from edgedec.export.tensors import FloatArray
from edgedec.models.decoder import DecoderSpec
from edgedec.models.heads import HeadSpec, head_for

_OFFSETS = "d2t"


@dataclass(frozen=True, slots=True)
class HeadCheckpoint:
    """A folder with a head.

    Attributes:
        path: the folder.
        spec: the head it describes, for the target.
        tensors: its weights by canonical name.
        ids: the target's ids of the tokens that it drafts, ascending, ``[draft vocabulary]``.

    """

    path: Path
    spec: HeadSpec
    tensors: HeadTensors
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
        return cls(path, spec, tensors, _ids(path, tensors.files, spec))


class HeadTensors:
    """The canonical tensors of a head, as a ``TensorReader``.

    Raises:
        CheckpointError: immediately for a missing tensor or a wrong shape, and when a row that is
            read contains NaN or infinity.

    """

    def __init__(self, path: Path, spec: HeadSpec) -> None:
        self.files = locate(path)
        self._shapes = spec.tensors()
        self._names: dict[str, str] = {}
        for name, shape in self._shapes.items():
            found = [one for one in spec.stored[name] if one in self.files]
            if not found:
                raise CheckpointError(f"{path} has no tensor {spec.stored[name][0]}")
            self._names[name] = found[0]
            stored = self.files[found[0]].shape(found[0])
            if stored != shape:
                raise CheckpointError(
                    f"{path}: {found[0]} is {list(stored)}, expected {list(shape)} by config.json"
                )

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def rows(self, name: str, start: int, stop: int) -> FloatArray:
        stored = self._names[name]
        values: FloatArray = self.files[stored].rows(stored, start, stop).astype(np.float32)
        if not np.isfinite(values).all():
            raise CheckpointError(f"{stored} contains NaN or infinite weights and is not exported")
        return values


def _ids(path: Path, files: Mapping[str, SafetensorsFile], spec: HeadSpec) -> npt.NDArray[np.int64]:
    """Return the target's ids: ``d2t`` holds what is to be added to a token of the head."""
    count, vocab = spec.layer.vocab_size, spec.target_vocab
    own: npt.NDArray[np.int64] = np.arange(count, dtype=np.int64)
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
