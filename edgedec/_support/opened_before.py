"""Remembers, between runs, files that a library opened safely in a child process.

There is one record for each kind. It is trusted for nothing but "these bytes opened with this
version"; where it is missing, damaged or cannot be written, files are checked again.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgedec._support.files import open_regular, sha256_of_stream
from edgedec._support.kept import CHECKS, Record, Unusable

_FORMAT = 1
_MAX_ENTRIES = 512


class OpenedBefore:
    """The files that opened with one version of a library.

    Args:
        kind: ``gguf`` or ``tokenizers``.
        version: of the library; files that opened with another are checked again.

    """

    def __init__(self, kind: str, version: str) -> None:
        self._record = Record(CHECKS, kind)
        self._version = version
        self._digests, self._opened = _load(self._record)
        self._changed = False

    def digest(self, files: Sequence[Path]) -> str:
        """Return one sha256 of all files' bytes; only new or changed files are read.

        Raises:
            OSError: a file cannot be read, or changed while it was read.

        """
        digests = []
        for file in files:
            identity = _identity(file)
            known = self._digests.get(identity)
            if known is None:
                known = _sha256(file)
                # Written to meanwhile: the sha256 is of no file there ever was.
                if _identity(file) != identity:
                    raise OSError(errno.EBUSY, "it changed while it was read", str(file))
                self._digests[identity] = known
                self._changed = True
            digests.append(known)
        return (
            digests[0] if len(files) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        )

    def opened(self, digest: str) -> bool:
        """True if these bytes opened before."""
        return self._opened.get(digest) == self._version

    def remember(self, digest: str) -> None:
        """These bytes opened."""
        self._opened[digest] = self._version
        self._changed = True

    def save(self) -> None:
        """Write new entries atomically, merged with another process's, or not at all."""
        if not self._changed:
            return
        digests, opened = _load(self._record)
        merged = {
            "format": _FORMAT,
            "digests": _newest({**digests, **self._digests}),
            "opened": _newest({**opened, **self._opened}),
        }
        # Without a cache files are checked again, nothing else.
        self._record.write(merged, f"checks of {self._record.key}, which need not be repeated")


def _load(record: Record) -> tuple[dict[str, str], dict[str, str]]:
    try:
        found = record.read()
    except Unusable:
        found = None
    if found is None or found.get("format") != _FORMAT:
        return {}, {}
    return _texts(found.get("digests")), _texts(found.get("opened"))


def _texts(value: Any) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {key: text for key, text in pairs if isinstance(text, str)}


def _newest(entries: dict[str, str]) -> dict[str, str]:
    return dict(list(entries.items())[-_MAX_ENTRIES:])


def _identity(file: Path) -> str:
    facts = file.stat()
    # The time of change, too: the one of writing can be set back.
    times = f"{facts.st_mtime_ns}|{facts.st_ctime_ns}"
    return f"{file.resolve()}|{facts.st_size}|{times}|{facts.st_dev}:{facts.st_ino}"


def _sha256(file: Path) -> str:
    with open_regular(file) as stream:
        return sha256_of_stream(stream)
