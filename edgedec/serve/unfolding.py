"""Follows the JSON of calls as it comes, so that arguments can go out before it is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

_OUTSIDE, _WITHIN = re.compile(r'["{}\[\]]'), re.compile(r'["\\]')
_KEY = re.compile(r'"(?:arguments|parameters)"\s*:\s*$')
_MOST_HEADER = 1000


class Unfolding:
    """Reads calls: objects with a name and then its arguments, a list of them, or arguments alone.

    What it cannot tell before the end (arguments before the name, or as a text; a function that
    was not given) ends its work: the rest is for who reads the whole.

    Args:
        names: of the functions that may be called.
        name: of the one whose arguments come alone; "" if the JSON says it.

    Attributes:
        begun: the calls so far, each a name and its arguments' JSON up to here.
        complete: how many of them are complete.

    """

    def __init__(self, names: Collection[str], name: str = "") -> None:
        self._names, self._name = names, name
        self.begun: list[tuple[str, list[str]]] = []
        self.complete = 0
        # Depths of braces: here, and around an object with a call.
        self._depth = self._base = 0
        self._quoted = self._escaped = self._over = self._known = False
        self._header = ""
        self._since: int | None = None  # where the header or the arguments go on in this piece

    def feed(self, text: str) -> None:
        """Take the next piece."""
        place = 0
        self._since = None if self._since is None else 0
        while place < len(text) and not self._over:
            if self._escaped:
                self._escaped, place = False, place + 1
                continue
            step = (_WITHIN if self._quoted else _OUTSIDE).search(text, place)
            if step is None:
                break
            place = step.end()
            if step[0] == "\\":
                self._escaped = True
            elif step[0] == '"':
                self._quoted = not self._quoted
            elif step[0] in "{[":
                self._open(text, step.start())
            else:
                self._close(text, place)
        if not self._over:
            self._keep(text, len(text))

    @property
    def _writing(self) -> bool:
        return len(self.begun) > self.complete

    def _keep(self, text: str, end: int) -> None:
        """Add what came since the last step to the arguments, or to what stands before them."""
        if self._since is None:
            return
        more, self._since = text[self._since : end], end
        if self._writing:
            self.begun[-1][1].append(more)
            return
        self._header += more
        self._over = self._over or len(self._header) > _MOST_HEADER

    def _open(self, text: str, place: int) -> None:
        if not self._writing:
            if self._depth == 0 and text[place] == "[" and not self._name:
                self._base = 1
            elif self._depth == self._base:
                self._begin_object(text, place)
            elif self._depth == self._base + 1 and not self._known and text[place] == "{":
                self._keep(text, place)
                if _KEY.search(self._header):
                    self._begin(_name(self._header), place)
        self._depth += 1

    def _begin_object(self, text: str, place: int) -> None:
        if text[place] == "[":
            self._over = True
        elif self._name:
            self._begin(self._name, place)
        else:
            self._header, self._since, self._known = "", place, False

    def _begin(self, name: str, place: int) -> None:
        if name not in self._names:
            self._over = True
            return
        self.begun.append((name, []))
        self._known, self._since = True, place

    def _close(self, text: str, place: int) -> None:
        self._depth -= 1
        if self._writing and self._depth == self._base + (0 if self._name else 1):
            self._keep(text, place)
            self.complete, self._since = len(self.begun), None
            self._over = bool(self._name)
        elif self._depth == self._base and not self._known:
            self._over = True  # a call without arguments that could be told
        elif self._depth < 1:
            self._over = True


def _name(header: str) -> str:
    """Return the function's name in what stands before its arguments; "" if it is not there."""
    try:
        name = json.loads(header + "0}").get("name")
    except (ValueError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""
