"""Reads calls that are not JSON: in tags, in braces, and in Python, as families write them.

A reader takes what stands between a call's mark and what ends it, and the types of the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from edgedec.text.described import CLOSE, OPEN

Call = tuple[str, Any]
# Of the arguments of each function, by name, their schemas.
Schemas = Mapping[str, Mapping[str, Any]]


class Dialect(NamedTuple):
    """How calls are written after a mark.

    Attributes:
        closing: what ends them.
        read: returns them; none, or ValueError, if they are no calls.
        behind: what may follow ``closing``.

    """

    closing: str
    read: Callable[[str, Schemas], list[Call]]
    behind: str = ""


def schemas_of(tools: Sequence[Mapping[str, Any]]) -> Schemas:
    """Return the arguments' schemas of functions, which may say anything."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        parameters = tool["function"].get("parameters")
        given = parameters.get("properties") if isinstance(parameters, Mapping) else None
        found[tool["function"]["name"]] = given if isinstance(given, Mapping) else {}
    return found


def listed(given: Any) -> list[Call]:
    """Return the calls that JSON states, one or a list; none if one of them is not a call."""
    found = []
    for one in given if isinstance(given, list) else [given]:
        one = one.get("function", one) if isinstance(one, dict) else None
        name = one.get("name") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(name, str):
            return []
        found.append((name, one.get("arguments", one.get("parameters", {}))))
    return found


# -- tags: values are text, whose types the schemas tell ----------------------------------------

_FUNCTION = re.compile(r'<(?P<tag>function)(?:=| name=")(?P<name>[\w.-]+)"?\s*>')
_PARAMETER = re.compile(r'<(?P<tag>param(?:eter)?)(?:=| name=")(?P<name>[^\s">]+)"?\s*>')
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?=<arg_key>|$)")
_ARGUMENT = re.compile(r"<arg_key>(?P<name>[^<]*)</arg_key>\s*<(?P<tag>arg_value)>")
_CDATA = re.compile(r"<!\[CDATA\[(.*)\]\]>", re.DOTALL)
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def tagged(text: str, schemas: Schemas) -> list[Call]:
    """Read ``<function=NAME><parameter=KEY>VALUE</parameter></function>`` and its variants."""
    if (named := _NAMED.match(text)) is not None:  # GLM: NAME<arg_key>KEY</arg_key>...
        return [_tagged(named[1], text[named.end() :], _ARGUMENT, schemas)]
    found = []
    for head, body in _elements(text, _FUNCTION):
        given = body.lstrip().startswith("{")
        one = (head, json.loads(body)) if given else _tagged(head, body, _PARAMETER, schemas)
        found.append(one)
    return found


def _tagged(name: str, text: str, opening: re.Pattern[str], schemas: Schemas) -> Call:
    known = schemas.get(name, {})
    return name, {key: _typed(one, known.get(key)) for key, one in _elements(text, opening)}


def _elements(text: str, opening: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield names and contents of a text's elements; ValueError if it has anything else."""
    place = 0
    while (head := opening.search(text, place)) is not None:
        closing = f"</{head['tag']}>"
        end = text.index(closing, head.end())
        outside, place = text[place : head.start()], end + len(closing)
        while text[place:].lstrip()[:1] not in ("", "<"):  # it is a part of the content
            end = text.index(closing, place)
            place = end + len(closing)
        if outside.strip():
            raise ValueError("expected elements alone")
        yield head["name"], text[head.end() : end]
    if text[place:].strip():
        raise ValueError("expected elements alone")


def _typed(value: str, schema: Any) -> Any:
    """Return a value of the type that its schema names; the text itself if there is none."""
    if (quoted := _CDATA.fullmatch(value.strip())) is not None:
        value = quoted[1]
    value = value.removeprefix("\n").removesuffix("\n")
    kinds, bare = _kinds(schema), value.strip()
    if "string" in kinds or (not kinds and bare[:1] not in ("{", "[")):
        return None if "null" in kinds and bare in ("null", "None") else value
    if bare.lower() in _WORDS:
        return _WORDS[bare.lower()]
    try:
        return _Literals(bare).whole()
    except (ValueError, RecursionError):
        return value


def _kinds(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    given = schema.get("type")
    kinds = {one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)}
    for name in ("anyOf", "oneOf"):
        choices = schema.get(name)
        for one in choices if isinstance(choices, list) else ():
            kinds |= _kinds(one)
    return kinds


# -- braces and Python: literals ----------------------------------------------------------------

_LITERAL = re.compile(
    r'\s*(?:<\|"\|>(?P<marked>.*?)<\|"\|>|<escape>(?P<escaped>.*?)<escape>'
    r'|"(?P<double>(?:[^"\\]|\\.)*)"|\'(?P<single>(?:[^\'\\]|\\.)*)\''
    r'|(?P<sign>[{}\[\](),:=])|(?P<word>[^\s{}\[\](),:="\'<]+))',
    re.DOTALL,
)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_ESCAPED = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))|\"", re.DOTALL
)
_CLOSINGS = {"{": "}", "[": "]", "(": ")"}


def braced(text: str, schemas: Schemas) -> list[Call]:
    """Read Gemma's ``call:NAME{key:value}``, whose texts stand between marks of their own."""
    literals = _Literals(text)
    literals.take("call")
    literals.take(":")
    call = (literals.name(), literals.members("{"))
    literals.end()
    return [call]


def spoken(text: str, schemas: Schemas) -> list[Call]:
    """Read calls in Python, in a list or one a line; or a list of them in JSON."""
    try:
        return listed(json.loads(text))
    except ValueError:
        literals = _Literals(text)
    found, in_list = list[Call](), literals.skip("[")
    while literals.next not in (None, ("sign", "]")):
        found.append((literals.name(), literals.members("(")))
        literals.skip(",")
    if in_list:
        literals.take("]")
    literals.end()
    return found


class _Literals:
    """Reads literals as JSON, Python and Gemma write them; ValueError where there are none.

    Attributes:
        next: the kind and the text of the next token; None at the end.

    """

    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0
        self._step()

    def _step(self) -> None:
        found = _LITERAL.match(self._text, self._place)
        if found is None:
            if self._text[self._place :].strip():
                raise ValueError("not a literal")
            self.next: tuple[str, str] | None = None
            return
        kind = str(found.lastgroup)
        self.next, self._place = (kind, found[kind]), found.end()

    def skip(self, sign: str) -> bool:
        """Pass a sign or a word, if it comes next; return whether it did."""
        if self.next is None or self.next not in (("sign", sign), ("word", sign)):
            return False
        self._step()
        return True

    def take(self, sign: str) -> None:
        if not self.skip(sign):
            raise ValueError(f"expected {sign}")

    def name(self) -> str:
        """Return a word, or a text that is a key."""
        if self.next is None or self.next[0] == "sign":
            raise ValueError("expected a name")
        found = self._text_of(*self.next)
        self._step()
        return found

    def whole(self) -> Any:
        """Return the only value."""
        found = self.value()
        self.end()
        return found

    def end(self) -> None:
        """Refuse anything that follows."""
        if self.next is not None:
            raise ValueError("expected no more")

    def value(self) -> Any:
        if self.next is None:
            raise ValueError("expected a value")
        kind, text = self.next
        if kind == "sign":
            return self.members(text) if text == "{" else self._items(text)
        self._step()
        return _word(text) if kind == "word" else self._text_of(kind, text)

    def members(self, opening: str) -> dict[str, Any]:
        """Return keys and values between an opening sign and its closing one."""
        self.take(opening)
        found = {}
        while not self.skip(_CLOSINGS[opening]):
            key = self.name()
            if not self.skip("="):
                self.take(":")
            found[key] = self.value()
            if not self.skip(",") and self.next != ("sign", _CLOSINGS[opening]):
                raise ValueError("expected a comma")
        return found

    def _items(self, opening: str) -> list[Any]:
        closing = _CLOSINGS.get(opening)
        if closing is None:
            raise ValueError("expected a value")
        self._step()
        found = []
        while not self.skip(closing):
            found.append(self.value())
            if not self.skip(",") and self.next != ("sign", closing):
                raise ValueError("expected a comma")
        return found

    def _text_of(self, kind: str, text: str) -> str:
        if kind not in ("double", "single"):
            return text
        try:  # an escape that JSON does not have stays as it is
            return str(json.loads(f'"{_ESCAPED.sub(_in_json, text)}"', strict=False))
        except ValueError:
            return text


def _in_json(escape: re.Match[str]) -> str:
    """Return as JSON writes it what Python's escape stands for, or a bare quotation mark."""
    code, known = escape[1] or escape[2], escape[3]
    if code:
        return json.dumps(chr(int(code, 16)))[1:-1]
    if known is None:
        return '\\"'
    if known == "'":
        return known
    return escape[0] if known in '"\\/bfnrtu' else f"\\{escape[0]}"


def _word(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        found = json.loads(text)
        if found not in (float("inf"), float("-inf")):
            return found
    return text


# What begins calls, and how they are written then.
DIALECTS = {
    OPEN: Dialect(CLOSE, tagged),  # unless JSON follows: Qwen3.5, Qwen3-Coder, GLM
    "<function=": Dialect(  # the same without the mark, which these models leave out at times
        "</function>", lambda text, known: tagged(f"<function={text}</function>", known), CLOSE
    ),
    "<function name=": Dialect(  # MiniCPM5
        "</function>", lambda text, known: tagged(f"<function name={text}</function>", known)
    ),
    "<|tool_call>": Dialect("<tool_call|>", braced),  # Gemma 4
    "<start_function_call>": Dialect("<end_function_call>", braced),  # FunctionGemma
    "<|tool_call_start|>": Dialect("<|tool_call_end|>", spoken),  # LFM2
    "<function_calls>": Dialect("</function_calls>", spoken),  # OLMo 3
}
# Marks around texts in braces.
TEXT_MARKS = ('<|"|>', "<escape>")
