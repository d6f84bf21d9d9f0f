"""The files of vectors: JSON with one case to a line, so that a change is a short difference."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "android_demo" / "vectors"
_SHOWN_LINES, _SHOWN_CHARACTERS = 20, 160


def text_of(value: Any) -> str:
    """Return a file's text: the elements of its lists stand in lines of their own."""
    if isinstance(value, list):
        return _listed(value) + "\n"
    parts = [
        f"{json.dumps(name)}: {_listed(part) if isinstance(part, list) else json.dumps(part)}"
        for name, part in value.items()
    ]
    return "{" + ",\n".join(parts) + "}\n"


def read(name: str) -> Any:
    """Return the vectors in a file of the folder."""
    return json.loads((FOLDER / name).read_text("utf-8"))


def write(name: str, text: str) -> None:
    """Write a file of the folder."""
    file = FOLDER / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def difference(name: str, text: str) -> str:
    """Return how a file of the folder differs from what it should be; "" if it does not."""
    file = FOLDER / name
    old = file.read_text("utf-8") if file.exists() else ""
    if old == text:
        return ""
    lines = difflib.unified_diff(old.splitlines(), text.splitlines(), name, "now", n=0, lineterm="")
    shown = [line[:_SHOWN_CHARACTERS] for _, line in zip(range(_SHOWN_LINES), lines, strict=False)]
    return "\n".join(shown)


def _listed(items: list[Any]) -> str:
    if not items:
        return "[]"
    return "[\n" + ",\n".join(json.dumps(item) for item in items) + "\n]"
