"""Reads the small files in which Linux describes a machine; one that is not there is empty."""

from __future__ import annotations

from pathlib import Path


def text(file: Path) -> str:
    """Return a file's text, without the spaces around it; "" where it cannot be read."""
    try:
        return file.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def number(file: Path) -> int | None:
    """Return the whole number that a file holds; None without one."""
    try:
        return int(text(file))
    except ValueError:
        return None


def sizes(file: Path) -> dict[str, int]:
    """Return the sizes in a file of lines such as ``VmSwap:  12 kB`` by name, in bytes."""
    found = {}
    for line in text(file).splitlines():
        name, _, value = line.partition(":")
        match value.split():
            case [size, "kB"] if size.isdecimal():
                found[name] = 1024 * int(size)
    return found
