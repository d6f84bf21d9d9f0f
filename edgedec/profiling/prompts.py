"""Texts to calibrate on: what a pair agrees about depends on what is written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from edgedec.errors import InputError

BUILT_IN = "built-in"
_MOST_BYTES = 8 << 20
_MOST = 64

_PYTHON = '''\
import math


def mean(values):
    """The arithmetic mean of a list."""
    if not values:
        raise ValueError("mean of nothing")
    return sum(values) / len(values)


def variance(values):
'''
_PYTHON_CLASS = '''\
class Stack:
    """A last-in, first-out list."""

    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)

    def pop(self):
'''
_PROSE = """\
The ferry leaves the island at six in the morning, when the harbour is still dark and the only \
light comes from the bakery. Most of the passengers know each other. They stand at the rail with \
paper cups of coffee and talk about the weather, the price of fish, and whether the new bridge"""
_LIST = """\
A checklist for the first day of a hiking trip:

1. Check the weather forecast for the whole route.
2. Tell somebody where you are going and when you will be back.
3. Pack water, food and a warm layer.
4."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text to go on from."""

    name: str
    text: str


CODE = (Prompt("function", _PYTHON), Prompt("class", _PYTHON_CLASS))
TEXTS = (*CODE, Prompt("prose", _PROSE), Prompt("list", _LIST))
# What passes are timed and compared on: both kinds of text, and more than one script.
SAMPLE = (
    f"{_PROSE} would ever be finished.\n\n{_PYTHON}\n{_LIST} Größe, café, 東京.\n{_PYTHON_CLASS}"
)


def read(file: Path) -> tuple[list[Prompt], str]:
    """The user's own texts, and their hash.

    Args:
        file: lines such as ``{"prompt": "Hello"}``.

    Raises:
        InputError: it cannot be read, or a line is no such object.

    """
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        lines = data.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(f"{file} is larger than {_MOST_BYTES >> 20} MiB: give fewer prompts")
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["prompt"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str) or not text:
            raise InputError(
                f'{file}, line {number}: expected an object such as {{"prompt": "Hello"}}'
            )
        found.append(Prompt(f"{file.name}:{number}", text))
    if not 0 < len(found) <= _MOST:
        raise InputError(f"{file} has {len(found)} prompts: expected 1 to {_MOST}")
    return found, hashlib.sha256(data).hexdigest()[:16]
