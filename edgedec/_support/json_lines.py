"""An append-only file with one JSON object per line, which an interrupted run resumes."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from edgedec._support.fields import json_object
from edgedec._support.locks import locked
from edgedec.errors import InputError

# Called with a line's object (None if the line is not a JSON object) and its place, such as
# ``out.jsonl:3``.
OnLine = Callable[[dict[str, Any] | None, str], object]


class JsonLines:
    """A file of JSON objects; each is on the disk when ``add`` returns.

    A last line without an end, left by a process that died, is cut off if it begins as every line
    does; any other is passed on, so that a foreign file is never changed.

    Args:
        path: created if missing. A pipe or a device cannot be read back and is only written to.
        first: name of the text with which every object begins.
        on_line: called with each line that is there. If it raises an error, the file is unchanged.
        busy: the error's text if another writer that gives one has the file; None takes no lock.

    Raises:
        OSError: the file cannot be opened.
        InputError: another writer has it.

    """

    def __init__(self, path: Path, first: str, on_line: OnLine, busy: str | None = None) -> None:
        self._path = path
        self._begins = f'{{"{first}": "'.encode()
        self._count = 0
        self._unended = False  # whether the last line that was there lacks its end
        self._file: IO[bytes] = path.open("ab")
        self._regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if self._regular:
            try:
                if busy is not None and not locked(self._file):
                    raise InputError(f"{path}: {busy}")
                self._read(on_line)
            except BaseException:
                self._file.close()
                raise

    def _read(self, on_line: OnLine) -> None:
        whole = 0
        with self._path.open("rb") as file:
            for number, data in enumerate(file, 1):
                begin = data[: len(self._begins)]
                if not data.endswith(b"\n") and self._begins.startswith(begin):
                    os.truncate(self._path, whole)
                    break
                on_line(json_object(data), f"{self._path}:{number}")
                whole += len(data)
                self._unended = not data.endswith(b"\n")
                self._count = number

    def add(self, fields: Mapping[str, Any]) -> None:
        """Write one object through to the disk.

        Raises:
            InputError: it cannot be written, as on a full disk; the file is as it was before.

        """
        line = _as_line(fields)
        before = os.fstat(self._file.fileno()).st_size
        try:
            start = b"\n" if self._unended else b""
            self._file.write(start + line.encode("utf-8") + b"\n")
            self._file.flush()
            if self._regular:
                os.fsync(self._file.fileno())
        except OSError as error:
            self._undo(before)
            raise InputError(
                f"{self._path}: {error.strerror}: make room and run the same command again; "
                f"{self._count} lines are kept"
            ) from None
        self._count += 1
        self._unended = False

    def _undo(self, length: int) -> None:
        """Cut the file back to its complete lines."""
        with contextlib.suppress(OSError):
            self._file.close()  # tries to write the rest of its buffer, and fails again
        if self._regular:
            os.truncate(self._path, length)

    def close(self) -> None:
        self._file.close()


def _as_line(fields: Mapping[str, Any]) -> str:
    """Return one line of JSON that UTF-8 can encode: a lone surrogate stays an escape."""
    line = json.dumps(fields, ensure_ascii=False)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(fields)
    return line
