"""Writes the Kotlin reader's table of letters and numbers: ``python -m tools.letter_tables``.

The tables are those of the expressions in the ``tokenizers`` library. Android's own know the characters of the year the
system is from.
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
_HEAD = '''package dev.edgedec.core

/**
 * Letters and numbers of Unicode as the expressions of the `tokenizers` library know them; written by
 * tools/letter_tables.py.
 *
 * Not `Character.getType`: it knows the characters of the year that an Android is from, and others would be cut, and so
 * encoded, in another way than the model was trained with.
 */
internal class Characters private constructor(lengths: String) {
    /** Where a run of such characters begins or ends. */
    private val bounds = lengths.split(' ').map { it.toInt(36) }.runningReduce(Int::plus).toIntArray()

    operator fun contains(char: Int): Boolean {
        val found = bounds.binarySearch(char)
        return (if (found < 0) -found - 1 else found + 1) % 2 == 1
    }

    companion object {
'''


def main() -> None:
    """Write the file in this checkout."""
    tables = {"LETTERS": _table(r"\p{L}"), "NUMBERS": _table(r"\p{N}")}
    text = _HEAD + "\n".join(_constant(name, table) for name, table in tables.items()) + "    }\n}\n"
    file = Path(__file__).parents[1] / FILE
    file.write_text(text, "utf-8")
    sys.stdout.write(f"{file}: {', '.join(f'{n} {len(t)}' for n, t in tables.items())} numbers\n")


def _constant(name: str, table: list[int]) -> str:
    lines, line = [], ""
    for number in map(_base36, table):
        if len(line) + len(number) >= _WIDTH:
            lines.append(line + " ")
            line = ""
        line += f" {number}" if line else number
    quoted = " +\n".join(f'                "{part}"' for part in [*lines, line])
    return f"        val {name} = Characters(\n{quoted},\n        )\n"


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
