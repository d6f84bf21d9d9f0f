"""Follows a checkpoint's links into the hub's cache, and refuses those that lead elsewhere.

A checkpoint is untrusted, and its tokenizer is copied into a bundle that may be published: a link
that leads out of it would publish a private file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec.errors import CheckpointError


def check(folder: Path) -> None:
    """Refuse a checkpoint folder with a link to a file elsewhere."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if _may_be_read(entry))
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error.strerror}") from None
    for name in names:
        own_file(folder, name)


def open_own(folder: Path, name: str) -> BinaryIO:
    """Open a regular file of a checkpoint for reading.

    Raises:
        CheckpointError: a link leads to a file elsewhere.
        OSError: it cannot be opened, or is not a regular file.

    """
    stream = open_regular(folder / name)
    try:
        # The opened file is compared with the checked one, since a link may be changed in between.
        if not os.path.samestat(os.fstat(stream.fileno()), os.lstat(own_file(folder, name))):
            raise _refused(folder, name)
    except BaseException:
        stream.close()
        raise
    return stream


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    """True if it is a link to anything but a folder; folders of a checkpoint are not read."""
    try:
        return entry.is_symlink() and not entry.is_dir()
    except OSError:  # a loop of links
        return True


def own_file(folder: Path, name: str) -> Path:
    """Return where a file of a checkpoint is, in its folder or in the hub's cache around it.

    Raises:
        CheckpointError: a link leads to a file elsewhere.

    """
    try:
        root, file = folder.resolve(), (folder / name).resolve()
    except (OSError, RuntimeError):  # a loop of links
        raise _refused(folder, name) from None
    if not any(file.is_relative_to(place) for place in _own(root)):
        raise _refused(folder, name)
    return file


def _own(root: Path) -> list[Path]:
    """Return the folder and, for ``models--a--b/snapshots/<revision>``, its sibling ``blobs``.

    The same holds for a folder anywhere in a revision.
    """
    for above in root.parents:
        if above.name == "snapshots" and above.parent.name.startswith("models--"):
            return [root, above.parent / "blobs"]
    return [root]


def _refused(folder: Path, name: str) -> CheckpointError:
    return CheckpointError(
        f"{folder / one_line(name)} is a link that leads out of the checkpoint: put the file itself"
        " there"
    )
