"""Writes an answer to a terminal as it comes, without words broken at the right edge.

A word is written once it is whole: at its end it is known whether it fits. Where it does not, a
line begins in place of the spaces before it. Code and tables keep their lines.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

_FENCES = ("```", "~~~")
# So far indented, a line is code.
_CODE, _TAB = 4, 8
Style = Callable[[str], str]


def plainly(text: str) -> str:
    """Return a text as it is."""
    return text


class Wrapping:
    """A text in a terminal, in parts as they come.

    Args:
        columns: returns its width in characters.

    """

    def __init__(self, write: Callable[[str], object], columns: Callable[[], int]) -> None:
        self._write, self._columns = write, columns
        self._at = 0  # the column of what comes next
        self._spaces: list[tuple[str, Style]] = []  # before the word
        self._word: list[tuple[str, Style]] = []
        self._width = 0  # of the word
        # Whether this line keeps its length; None before that is known.
        self._kept: bool | None = None
        self._fenced = False
        self._long = False  # the word does not fit any line, and is written as it comes

    def add(self, text: str, style: Style = plainly) -> None:
        """Add a part.

        Args:
            style: colours it, in whatever pieces it is written.

        """
        for character in text:
            if character == "\n":
                self._end_line()
            elif character in " \t":
                self._end_word()
                self._spaces.append((character, style))
            else:
                self._lengthen(character, style)
        if self._kept:
            self._end_word()
            self._write_spaces()

    def end(self) -> None:
        """Write what was held back."""
        self._end_word()
        self._write_spaces()

    def _lengthen(self, character: str, style: Style) -> None:
        wide = _width(character)
        # Scripts without spaces break before any character, but not before a comma.
        if wide > 1 and not unicodedata.category(character).startswith("P"):
            self._end_word()
        self._word.append((character, style))
        self._width += wide
        if self._long or self._width > self._columns():
            self._place_word()
            self._long = True

    def _end_word(self) -> None:
        if self._word:
            self._place_word()
        self._long = False

    def _place_word(self) -> None:
        """Write the word after its spaces, or in a new line."""
        if self._kept is None:
            self._kept = self._is_kept()
        columns, gap = self._columns(), self._gap()
        fits = self._at + gap + self._width <= columns
        if self._kept or fits or not self._at or self._width > columns or self._long:
            self._write_spaces()
        else:
            self._write("\n")
            self._spaces, self._at = [], 0
        self._write(_styled(self._word))
        self._at += self._width
        if self._at > columns:
            self._at %= columns  # the terminal's own breaks
        self._word, self._width = [], 0

    def _end_line(self) -> None:
        self._end_word()
        if self._at + self._gap() <= self._columns():
            self._write_spaces()
        self._write("\n")
        self._spaces, self._at = [], 0
        self._kept = None

    def _write_spaces(self) -> None:
        self._at += self._gap()
        if self._spaces:
            self._write(_styled(self._spaces))
            self._spaces = []

    def _gap(self) -> int:
        """Return the columns that the spaces take."""
        at = self._at
        for space, _ in self._spaces:
            at += _TAB - at % _TAB if space == "\t" else 1
        return at - self._at

    def _is_kept(self) -> bool:
        """Return whether the line that begins with this word keeps its length."""
        word = "".join(character for character, _ in self._word)
        if word.startswith(_FENCES):
            self._fenced = not self._fenced
            return True
        return self._fenced or self._gap() >= _CODE or word.startswith("|")


def _styled(characters: list[tuple[str, Style]]) -> str:
    """Return characters as they are written, those of one style together."""
    found, together = "", ""
    style: Style = plainly
    for character, own in characters:
        if own is not style and together:
            found, together = found + style(together), ""
        style = own
        together += character
    return found + (style(together) if together else "")


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
