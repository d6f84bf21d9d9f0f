"""Calibration prompts: the acceptance rate of a pair depends on the text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec.errors import InputError
from edgedec.models.demo import BUNDLE
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.text.tokenizer import Tokenizer

BUILT_IN = "built-in"
_ALL, _OF_DEMO = 1 << 20, 6
# Most texts recorded: more add little information and take longer to decode.
MOST = 24

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
class CalibrationPrompt:
    """A prompt to continue.

    Attributes:
        name: its name.
        text: plain text; empty if there are messages.
        messages: a conversation, which the model's chat template renders.

    """

    name: str
    text: str
    messages: tuple[Mapping[str, Any], ...] = ()

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """Return the prompt's tokens.

        Raises:
            InputError: there are messages, and the model has no chat template or it refuses them.

        """
        if self.messages:
            return tokenizer.encode_chat(self.messages)
        return tokenizer.encode(self.text)


CODE = (CalibrationPrompt("function", _PYTHON), CalibrationPrompt("class", _PYTHON_CLASS))
TEXTS = (*CODE, CalibrationPrompt("prose", _PROSE), CalibrationPrompt("list", _LIST))
# Text on which passes are timed and compared: prose and code, in more than one script.
SAMPLE = (
    f"{_PROSE} would ever be finished.\n\n{_PYTHON}\n{_LIST} Größe, café, 東京.\n{_PYTHON_CLASS}"
)


def of_bundle(bundle: str | Path) -> tuple[CalibrationPrompt, ...]:
    """Return the prompts for a user who gives none; the demo pair has its own kind of text."""
    if str(bundle) == "demo" or Path(bundle).resolve() == BUNDLE.resolve():
        # The last ones, since benchmarks measure on the first ones.
        with suppress(InputError):
            return tuple(
                CalibrationPrompt(p.name, p.text) for p in heldout_prompts(_ALL)[-_OF_DEMO:]
            )
    return TEXTS


def some(prompts: Sequence[CalibrationPrompt]) -> list[CalibrationPrompt]:
    """Return at most ``MOST``, evenly spaced, since a file's first lines may be of one kind."""
    if len(prompts) <= MOST:
        return list(prompts)
    return [prompts[index * len(prompts) // MOST] for index in range(MOST)]


def digest(prompts: Sequence[CalibrationPrompt]) -> str:
    """Return a hash of the texts."""
    found = hashlib.sha256()
    for prompt in prompts:
        found.update(f"{len(prompt.text)} {prompt.text}".encode("utf-8", "surrogatepass"))
        if prompt.messages:
            found.update(json.dumps(prompt.messages).encode())
    return found.hexdigest()[:16]
