"""Which files llama.cpp opened without harm, remembered between runs.

One small JSON file in the user's cache folder. It is trusted for nothing but "these bytes opened
with this version"; where it is missing, damaged or cannot be written, files are checked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FORMAT = 1
MAX_ENTRIES = 512
MAX_BYTES = 1 << 20


def cache_file() -> Path:
    """Where it is kept: ``$XDG_CACHE_HOME/edgedec`` or ``~/.cache/edgedec``.

    Raises:
        OSError: this user has no home, as some containers' have none.

    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(str(error)) from None
    return folder / "edgedec" / "opened-gguf.json"


class Remembered:
    """The files that opened with one version of the runtime.

    Args:
        version: of the runtime; files that opened with another are checked again.

    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._digests, self._opened = _load()
        self._changed = False

    def digest(self, files: Sequence[Path]) -> str:
        """One sha256 for all the files' bytes; a file is read only where it is new or changed."""
        digests = []
        for file in files:
            known = self._digests.get(_identity(file))
            if known is None:
                known = self._digests[_identity(file)] = _sha256(file)
                self._changed = True
            digests.append(known)
        return (
            digests[0] if len(files) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
        )

    def opened(self, digest: str) -> bool:
        """Whether these bytes opened."""
        return self._opened.get(digest) == self._version

    def remember(self, digest: str) -> None:
        """These bytes opened."""
        self._opened[digest] = self._version
        self._changed = True

    def save(self) -> None:
        """Write what is new in one move, beside what another process wrote; or not at all."""
        if not self._changed:
            return
        digests, opened = _load()
        merged = {
            "format": FORMAT,
            "digests": _newest({**digests, **self._digests}),
            "opened": _newest({**opened, **self._opened}),
        }
        try:
            file = cache_file()
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=file.parent, prefix=".opened-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump(merged, stream)
                os.replace(name, file)
            except OSError:
                Path(name).unlink(missing_ok=True)
        except OSError:
            pass  # without a cache files are checked again, nothing else


def _load() -> tuple[dict[str, str], dict[str, str]]:
    try:
        with cache_file().open("rb") as stream:
            parsed = json.loads(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or parsed.get("format") != FORMAT:
        return {}, {}
    return _texts(parsed.get("digests")), _texts(parsed.get("opened"))


def _texts(value: Any) -> dict[str, str]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {key: text for key, text in pairs if isinstance(text, str)}


def _newest(entries: dict[str, str]) -> dict[str, str]:
    return dict(list(entries.items())[-MAX_ENTRIES:])


def _identity(file: Path) -> str:
    facts = file.stat()
    # The time of change, too: the one of writing can be set back.
    times = f"{facts.st_mtime_ns}|{facts.st_ctime_ns}"
    return f"{file.resolve()}|{facts.st_size}|{times}|{facts.st_dev}:{facts.st_ino}"


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
