"""Finds calls in what a model writes, in the dialects of the families in docs/models.md.

A call is a mark and JSON: an object with a name and arguments, or a list of them; or the name, and
the arguments alone. Models without a mark write nothing but the JSON. Calls that are not JSON are
in ``dialects``: they are read when they are whole.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection
from typing import Any

from edgedec.serve.dialects import DIALECTS, TEXT_MARKS, Call, Dialect, listed, schemas_of
from edgedec.serve.messages import Tools
from edgedec.text.described import CLOSE, OPEN
from edgedec.text.thinking import CHANNEL, MESSAGE

# What begins a call in JSON, and what may end it.
_MARKS = {
    OPEN: CLOSE,  # Hermes, Qwen, SmolLM3, Granite 4
    "<|tool_call|>": "<|/tool_call|>",  # Granite 3, Phi-4-mini
    "<tool_calls>": "</tool_calls>",  # Hunyuan
    "<TOOLCALL>": "</TOOLCALL>",  # Nemotron Nano 2
    "[TOOL_CALLS]": "",  # Mistral
    "<|python_tag|>": "",  # Llama 3
    CHANNEL: "",  # harmony, as ``text.thinking`` writes the header of a call
}
_CALL_ID, _ARGUMENTS = "[CALL_ID]", "[ARGS]"
# The same of all dialects; JSON may follow a mark of both.
_CLOSINGS = {**{opening: one.closing for opening, one in DIALECTS.items()}, **_MARKS}
# Special tokens among them are shown to what reads calls, and to nobody else.
NAMES = tuple(filter(None, (*_CLOSINGS, *_CLOSINGS.values(), _CALL_ID, _ARGUMENTS, *TEXT_MARKS)))
# What stands between a mark and the JSON: nothing, or a name.
_HEAD = re.compile(
    r"\s*(?:to=functions\.)?([\w.-]*)\s*(?:\[CALL_ID\]\w*)?(?:\[ARGS\])?"
    rf"(?:{re.escape(MESSAGE)})?\s*"
)
# Characters after a mark in which a call that is not JSON says its function.
_MOST_HEAD = 200
# Between the calls of a model whose mark has no end.
_NEXT = re.compile(r"\s*[;,]?\s*(?=[\[{])")
_STEP = re.compile(r'["{}\[\]]')
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class Calls:
    """Separates calls from the text around them, as it comes.

    Args:
        tools: what may be called.
        hidden: special tokens' names, which are no text.
        pieces: whether a call is found with its name, and its arguments grow.

    Attributes:
        found: the calls so far, as the API writes them.
        cut: whether the text ended within the last one.

    """

    def __init__(self, tools: Tools, hidden: Collection[str] = (), *, pieces: bool = False) -> None:
        self._tools, self._hidden, self._pieces = tools, hidden, pieces
        self._schemas = schemas_of(tools.given)
        self._held, self._shown = "", False
        # Whether the text that is held begins a call, and whether another may follow unmarked.
        self._begun = self._goes_on = False
        # Where the JSON that is held begins, what follows it, and how many of its calls are found.
        self._behind, self._announced = 0, 0
        self._native = False  # whether what is held is not JSON
        self._forced = pieces and tools.grammar is not None
        self._following = Unfolding(tools.names) if self._forced else None
        self._given: list[int] = []  # characters of arguments
        self.found: list[dict[str, Any]] = []
        self.cut = False

    def deltas(self) -> list[dict[str, Any]]:
        """Return what is new about the calls since this was last asked, as the API writes it."""
        new = []
        for place in range(max(0, len(self._given) - 1), len(self.found)):
            call, arguments = self.found[place], self.found[place]["function"]["arguments"]
            if place == len(self._given):
                new.append({"index": place, **call, "function": dict(call["function"])})
                self._given.append(len(arguments))
            elif more := arguments[self._given[place] :]:
                new.append({"index": place, "function": {"arguments": more}})
                self._given[place] = len(arguments)
        return new

    def push(self, text: str) -> str:
        """Take text; return what cannot be part of a call."""
        self._held += text
        if self._begun or self._forced:
            self._follow(text)
            if self._forced or not any(char in text for char in "]}<>"):
                return ""
        shown = self._read(final=False)
        if self._begun:
            return shown
        start = self._held.lstrip()
        if not self._shown and not self.found and start[:1] in ("{", "["):
            return shown  # may be an unmarked call
        if self._goes_on and not start.strip("; ,\n"):
            return shown
        return shown + self._show(len(self._held) - _begins(self._held))

    def finish(self) -> str:
        """Return the rest of the text; a whole text that is a call's JSON is a call."""
        if self._forced and self._announced:
            self._end_following()
            return ""
        shown = self._read(final=True)
        rest = self._held.strip()
        if not self._shown and not self.found and rest[:1] in ("{", "["):
            length, calls = _read(rest, "", final=True) or (0, [])
            if length == len(rest) and self._take(calls):
                self._held = ""
        if self._goes_on and not rest.strip("; ,\n"):
            self._held = ""
        return shown + self._show(len(self._held))

    def _read(self, *, final: bool) -> str:
        """Take the marked calls of the text that is held; return the text around them."""
        shown = ""
        while (mark := self._mark()) is not None:
            start, begin, opening = mark
            closing, behind = _CLOSINGS.get(opening, ""), self._held[begin:]
            dialect = _native(opening, behind)
            if dialect is None:
                read = _read(behind, closing, final=final)
            else:
                read = self._read_native(dialect, behind, final=final)
            self._begun, self._native = read is None, dialect is not None
            if read is None:
                self._behind = begin - start
                shown += self._show(start)
                self._follow("")
                return shown
            length, calls = read
            announced = self._announced
            if announced and not length:  # the text has ended within the JSON
                self._end_following()
                return shown
            self._following, self._announced = None, 0
            if self._take(calls[announced:]) or announced:
                shown += self._show(start)
                self._held = self._held[begin + length - start :]
                self._goes_on = not closing
            else:
                shown += self._show(begin + length)
        return shown

    def _read_native(
        self, dialect: Dialect, text: str, *, final: bool
    ) -> tuple[int, list[Call]] | None:
        """Return as ``_read`` what follows a mark and is not JSON."""
        end = text.find(dialect.closing)
        if end < 0 and not final:
            named = any(name in text[:_MOST_HEAD] for name in self._tools.names)
            return None if named or len(text) < _MOST_HEAD else (0, [])
        body = text if end < 0 else text[:end]
        length = len(body) if end < 0 else _with_closing(
            text, end + len(dialect.closing), dialect.behind, final=final
        )  # fmt: skip
        if length is None:
            return None
        try:
            return length, dialect.read(body, self._schemas)
        except (ValueError, RecursionError):
            return length, []

    def _mark(self) -> tuple[int, int, str] | None:
        """Return where the next call's mark begins and ends, and the mark."""
        again = _NEXT.match(self._held) if self._goes_on else None
        if again is not None and not self._held.startswith(tuple(_CLOSINGS), again.end()):
            return 0, again.end(), ""
        found = [(place, place + len(opening), opening) for opening in _CLOSINGS
                 if (place := self._held.find(opening)) >= 0]  # fmt: skip
        return min(found, default=None)

    def _show(self, count: int) -> str:
        """Release this many of the held characters, and return them without hidden marks."""
        more, self._held = self._held[:count], self._held[count:]
        for name in self._hidden:
            more = more.replace(name, "")
        self._shown = self._shown or bool(more.strip())
        if more.strip():
            self._goes_on = False
        return more

    def _follow(self, text: str) -> None:
        """Add what has come of the calls whose JSON is held, of which this is the latest."""
        if not self._pieces or self._native:
            return
        if self._following is None:
            head = _HEAD.match(self._held, self._behind)
            assert head is not None, "it matches an empty text"
            text = self._held[head.end() :]
            if any(mark.startswith(text) for mark in NAMES) or text[0] not in "{[":
                return  # it may be a part of the next mark
            self._following = Unfolding(self._tools.names, head[1])
        self._following.feed(text)
        first = len(self.found) - self._announced
        begun = self._following.begun
        for place in range(max(0, self._announced - 1), len(begun)):
            name, pieces = begun[place]
            if place == self._announced:
                self._add(name, "")
                self._announced += 1
            self.found[first + place]["function"]["arguments"] += "".join(pieces)
            pieces.clear()

    def _end_following(self) -> None:
        """End in the middle of the JSON of calls, some of which are found."""
        assert self._following is not None, "it has found them"
        self.cut, self._held = self._following.complete < self._announced, ""

    def _take(self, calls: list[Call]) -> bool:
        if not calls or not all(name in self._tools.names for name, _ in calls):
            return False
        for name, arguments in calls:
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            self._add(name, arguments)
        return True

    def _add(self, name: str, arguments: str) -> None:
        function = {"name": name, "arguments": arguments}
        self.found.append(
            {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}
        )


def _read(text: str, closing: str, *, final: bool) -> tuple[int, list[Call]] | None:
    """Return the calls after a mark, and where they end; None if more text decides.

    Args:
        text: what follows the mark.
        closing: what may end them.
        final: whether no more text comes.

    """
    head = _HEAD.match(text)
    assert head is not None, "it matches an empty text"
    begin, name = head.end(), head[1]
    end = _end_of_json(text, begin)
    if end is None:
        undecided = not final and (begin == len(text) or text[begin] in "[{")
        return None if undecided else (0, [])
    length = _with_closing(text, end, closing, final=final)
    if length is None:
        return None
    try:
        found = json.loads(text[begin:end])
    except (ValueError, RecursionError):
        return length, []
    return length, [(name, found)] if name else listed(found)


def _with_closing(text: str, end: int, closing: str, *, final: bool) -> int | None:
    """Return where calls end that ``closing`` may follow; None if more text decides."""
    rest = text[end:].lstrip()
    if not closing or not (rest.startswith(closing) or closing.startswith(rest)):
        return end
    if rest.startswith(closing):
        return len(text) - len(rest) + len(closing)
    return end if final else None


def _native(opening: str, text: str) -> Dialect | None:
    """Return how calls are written after a mark; None if this is JSON, or not known yet."""
    if opening not in _MARKS:
        return DIALECTS.get(opening)
    head = _HEAD.match(text)
    assert head is not None, "it matches an empty text"
    return None if text[head.end() :][:1] in ("", "{", "[") else DIALECTS.get(opening)


def object_of(arguments: str) -> dict[str, Any]:
    """Return arguments for an API that has them as an object; an empty one if they are none."""
    try:
        found = json.loads(arguments)
        json.dumps(found, allow_nan=False)  # as the answer is written
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _end_of_json(text: str, begin: int) -> int | None:
    """Return where an object or a list ends; None if there is none, or it goes on."""
    if text[begin : begin + 1] not in ("{", "["):
        return None
    depth, place = 0, begin
    while (step := _STEP.search(text, place)) is not None:
        place = step.end()
        if step[0] == '"':
            if (whole := _TEXT.match(text, step.start())) is None:
                return None
            place = whole.end()
            continue
        depth += 1 if step[0] in "{[" else -1
        if depth == 0:
            return place
    return None


def _begins(text: str) -> int:
    """Return how many of the last characters may begin a call."""
    for size in range(min(max(map(len, _CLOSINGS)) - 1, len(text)), 0, -1):
        if any(opening.startswith(text[-size:]) for opening in _CLOSINGS):
            return size
    return 0


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
