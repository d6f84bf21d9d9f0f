"""Texts for calibration and parity: the user's file, or a short built-in text."""

from __future__ import annotations

from pathlib import Path

from edgedec.errors import InputError

_MOST_CHARACTERS = 1 << 20

TEXT = '''\
The lighthouse keeper wrote three numbers in the book every evening: the height of the oil in
the tank, the hour at which he lit the lamp, and the number of ships he had counted since noon.
In winter the last number was often zero. He wrote it all the same, because a line without it
would have looked as if he had forgotten, and he had not forgotten in thirty-one years.

import csv
from collections import defaultdict


def read_log(path):
    """Return the ships counted on each day, as a dictionary from date to number."""
    ships = defaultdict(int)
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if not row["ships"].strip():
                continue
            ships[row["date"]] += int(row["ships"])
    return dict(ships)


class Keeper:
    def __init__(self, name, oil=0.0):
        self.name = name
        self.oil = oil

    def fill(self, litres):
        if litres < 0:
            raise ValueError("litres must not be negative")
        self.oil += litres
        return self.oil

Question: A tank holds 240 litres and the lamp burns 16 litres a night. How many nights pass
before it has to be filled again? Answer: 240 / 16 = 15, so the tank lasts for 15 nights.

Der Wind kam von Norden, und am Morgen lag Eis auf den Stufen. La mer était calme, mais froide.
'''


def read_text(file: Path) -> str:
    """Return the beginning of a text file, or raise InputError."""
    try:
        with file.open(encoding="utf-8") as stream:
            return stream.read(_MOST_CHARACTERS)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as UTF-8 text: {error}") from None
