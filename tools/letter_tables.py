"""Writes the Kotlin reader's tables of letters and numbers: ``python -m tools.letter_tables``.

They are what the expressions of the ``tokenizers`` library match; see Characters.kt.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

from tokenizers import Regex, pre_tokenizers

FILE = "android_demo/core/src/main/kotlin/dev/edgedec/core/Letters.kt"
_CHARACTERS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_CHUNK, _WIDTH = 4096, 96
_HEAD = """package dev.edgedec.core

// Written by tools/letter_tables.py: how many characters do not match, match, do not match and so on, in base 36.
"""  # noqa: E501


def main() -> None:
    """Write the file in this checkout."""
    tables = {"LETTERS": _table(r"\p{L}"), "NUMBERS": _table(r"\p{N}")}
    file = Path(__file__).parents[1] / FILE
    file.write_text(_HEAD + "".join(_constant(name, tables[name]) for name in tables), "utf-8")
    sys.stdout.write(f"{file}: {', '.join(f'{n} {len(t)}' for n, t in tables.items())} numbers\n")


def _constant(name: str, table: list[int]) -> str:
    lines, line = [], ""
    for number in map(_base36, table):
        if len(line) + len(number) >= _WIDTH:
            lines.append(line + " ")
            line = ""
        line += f" {number}" if line else number
    quoted = " +\n".join(f'        "{part}"' for part in [*lines, line])
    return f"\ninternal val {name} = Characters(\n{quoted},\n)\n"


def _table(expression: str) -> list[int]:
    """Return the lengths of runs that do not match, match, do not match and so on."""
    matching = _matching(expression)
    flags = [code in matching for code in range(0x110000)]
    changes = [code for code, (one, two) in enumerate(pairwise(flags), 1) if one != two]
    return [end - start for start, end in pairwise([0, *changes])]


def _matching(expression: str) -> set[int]:
    cut = pre_tokenizers.Split(Regex(expression), "isolated")
    found: set[int] = set()
    for start in range(0, len(_CHARACTERS), _CHUNK):
        chunk = _CHARACTERS[start : start + _CHUNK]
        # Between two that do not match, a character that does is a piece by itself.
        text = "\1".join(["", *map(chr, chunk), ""])
        pieces = {piece for piece, _ in cut.pre_tokenize_str(text)}
        found.update(code for code in chunk if code != 1 and chr(code) in pieces)
    return found


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


if __name__ == "__main__":
    main()
