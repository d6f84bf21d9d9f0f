"""Calibration prompts: the acceptance rate of a pair depends on the text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgedec.errors import InputError
from edgedec.models.demo import BUNDLE
from edgedec.models.demo.heldout import heldout_prompts
from edgedec.text.tokenizer import Tokenizer

BUILT_IN = "built-in"
_ALL, _OF_DEMO = 1 << 20, 6
# A text to continue, or a conversation to answer.
Text = str | Sequence[Mapping[str, Any]]

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


TEXTS = (_PYTHON, _PYTHON_CLASS, _PROSE, _LIST)
# Text on which passes are timed and compared: prose and code, in more than one script.
SAMPLE = (
    f"{_PROSE} would ever be finished.\n\n{_PYTHON}\n{_LIST} Größe, café, 東京.\n{_PYTHON_CLASS}"
)


def of_bundle(bundle: str | Path) -> tuple[Text, ...]:
    """Return the texts for a user who gives none; the demo pair has its own kind of text."""
    if str(bundle) == "demo" or Path(bundle).resolve() == BUNDLE.resolve():
        # The last ones, since benchmarks measure on the first ones.
        with suppress(InputError):
            return tuple(prompt.text for prompt in heldout_prompts(_ALL)[-_OF_DEMO:])
    return TEXTS


def encode(text: Text, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a text, or of a conversation that the model's chat template renders.

    Raises:
        InputError: the model has no chat template, or it refuses the messages.

    """
    return tokenizer.encode(text) if isinstance(text, str) else tokenizer.encode_chat(text)


def digest(texts: Sequence[Text]) -> str:
    """Return a hash of the texts."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]
