"""Stores the finished parts of a run, so that an interrupted one can resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from edgedec._support.atomic import replacing
from edgedec._support.fields import json_object, one_line
from edgedec.errors import InputError


class Parts:
    """The finished parts of a run, one JSON line each.

    Args:
        file: where they are stored.
        about: everything that affects their results; parts of another run are refused.

    Raises:
        InputError: the file has parts of another run.

    """

    def __init__(self, file: Path, about: Mapping[str, Any]) -> None:
        self._file = file
        # After a round trip through JSON, in which tuples become lists and keys strings.
        head = {"about": json.loads(json.dumps(about))}
        self._found = self._kept(head)
        lines = [head, *({"part": name, "found": found} for name, found in self._found.items())]
        with replacing(file) as stream:
            stream.write("".join(json.dumps(line) + "\n" for line in lines).encode())

    def __len__(self) -> int:
        return len(self._found)

    def get(self, name: str, find: Callable[[], Any]) -> Any:
        """Return a part's result; compute and store it unless an earlier run did."""
        if name not in self._found:
            self._found[name] = find()
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"part": name, "found": self._found[name]}) + "\n")
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def remove(self) -> None:
        """Delete the file: the run is finished."""
        self._file.unlink()

    def _kept(self, head: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parts in the file, without a last line that an interrupt truncated."""
        try:
            lines = self._file.read_text("utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        before, *parts = [json_object(line) or {} for line in lines] or [{}]
        if before.get("about") != head["about"]:
            differ = _difference(before.get("about"), head["about"])
            raise InputError(
                f"{self._file}: an unfinished run {differ}: repeat its command to continue, delete"
                " the file to start again, or choose another folder"
            )
        return {part["part"]: part["found"] for part in parts if {"part", "found"} <= set(part)}


def _difference(before: Any, now: Mapping[str, Any]) -> str:
    """Describe how an unfinished run differs."""
    if not isinstance(before, dict):
        return "of something else"
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return f"with other {one_line(', '.join(names)).replace('_', ' ')}"
