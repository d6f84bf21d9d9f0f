"""The envelope of a saved session: its model, its length, and a hash of every byte.

::

    EDGEDEC, NUL  8 bytes
    header size   4 bytes, little-endian
    header        JSON: version, runtime, model, length, bytes, sha256
    payload       the runtime's own

Files are untrusted. No part of the payload reaches a runtime before its hash is checked, which
detects damage but is not a signature.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from edgedec.errors import SnapshotError

VERSION = 1
_MAGIC = b"EDGEDEC\0"
_SIZE = struct.Struct("<I")
_MAX_HEADER = 1 << 16
_BLOCK = 1 << 20

Payload = Sequence[bytes | bytearray | memoryview]


class TooLarge(SnapshotError):
    """A saved state has more bytes than a session takes."""


def begins(path: Path) -> bool:
    """Return whether a file begins as a saved state does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def write(file: BinaryIO, *, runtime: str, model: str, length: int, payload: Payload) -> None:
    """Write a state.

    Args:
        file: open for writing in binary.
        runtime: the runtime's name.
        model: a fingerprint; loading into any other model is refused.
        length: committed tokens.
        payload: its bytes, in parts.

    """
    digest = hashlib.sha256()
    for part in payload:
        digest.update(part)
    header = {
        "version": VERSION,
        "runtime": runtime,
        "model": model,
        "length": length,
        "bytes": sum(memoryview(part).nbytes for part in payload),
        "sha256": digest.hexdigest(),
    }
    data = json.dumps(header).encode()
    file.write(_MAGIC + _SIZE.pack(len(data)) + data)
    for part in payload:
        file.write(part)


def read(file: BinaryIO, *, runtime: str, model: str, most: int) -> tuple[int, bytearray]:
    """Read a state; return its length and payload.

    Args:
        file: open for reading in binary, at the state's first byte.
        most: largest payload of this session, in bytes; a longer one is refused unread.

    Raises:
        SnapshotError: not a state, or it is damaged, too large, or of another model or runtime.

    """
    header = _header(file)
    for name, ours in (("version", VERSION), ("runtime", runtime), ("model", model)):
        if header.get(name) != ours:
            raise SnapshotError(
                f"the saved state is of another {name}: load it where it was saved, or start again"
            )
    length, size = header.get("length"), header.get("bytes")
    if not isinstance(length, int) or not isinstance(size, int) or length < 0:
        raise _damaged()
    if not 0 <= size <= most:
        raise TooLarge(
            f"the saved state has {size} bytes, this session takes at most {most}:"
            " open it with the context it was saved with"
        )
    payload = bytearray()
    digest = hashlib.sha256()
    while len(payload) < size:
        block = file.read(min(_BLOCK, size - len(payload)))
        if not block:
            raise _damaged()
        digest.update(block)
        payload += block
    if digest.hexdigest() != header.get("sha256"):
        raise _damaged()
    return length, payload


def numbers(
    payload: bytearray, dtype: npt.DTypeLike, count: int = -1, offset: int = 0
) -> npt.NDArray[Any]:
    """Return ``count`` numbers of a payload, or all, as a view of its bytes from ``offset`` on.

    Raises:
        SnapshotError: one is NaN or infinite; the model would be blamed for its logits.

    """
    found = np.frombuffer(payload, dtype, count, offset)
    blocks = (found[at : at + _BLOCK] for at in range(0, len(found), _BLOCK))
    if not all(np.isfinite(block).all() for block in blocks):
        raise SnapshotError(
            "the saved state contains NaN or infinity: start again, or use another file"
        )
    return found


def _header(file: BinaryIO) -> dict[str, Any]:
    start = file.read(len(_MAGIC) + _SIZE.size)
    if len(start) < len(_MAGIC) + _SIZE.size or not start.startswith(_MAGIC):
        raise SnapshotError("this is not a saved state of a session: give a file that save() wrote")
    (size,) = _SIZE.unpack(start[len(_MAGIC) :])
    try:
        header = json.loads(file.read(size)) if size <= _MAX_HEADER else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _damaged()
    return header


def _damaged() -> SnapshotError:
    return SnapshotError("the saved state is damaged: its bytes differ from those that were saved")
