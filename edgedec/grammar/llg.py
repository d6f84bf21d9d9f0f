"""Calls of llguidance shared by this process and the child that compiles grammars.

Imports the library when called.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edgedec._support.fields import printable
from edgedec.grammar.spec import JSON_SCHEMA, REGEX

if TYPE_CHECKING:
    import llguidance
    from llguidance._lib import JsonCompileOptions

JSON_STYLE: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}
_MOST = 300


def translated(kind: str, source: str) -> str:
    """Return a grammar in the library's own form; ValueError if it is not of that kind."""
    from llguidance import LLMatcher

    if kind == JSON_SCHEMA:
        own = "x-guidance" in json.loads(source)
        return LLMatcher.grammar_from_json_schema(source, defaults=None if own else JSON_STYLE)
    if kind == REGEX:
        return LLMatcher.grammar_from_regex(source)
    if "::=" in source:
        from llguidance.gbnf_to_lark import gbnf_to_lark

        try:
            source = gbnf_to_lark(source)
        except Exception as error:
            raise ValueError(str(error)) from None
    return LLMatcher.grammar_from_lark(source)


def matcher(tokenizer: llguidance.LLTokenizer, text: str) -> llguidance.LLMatcher:
    """Return a matcher at the beginning of a text, or in an error state."""
    from llguidance import LLMatcher, LLParserLimits

    return LLMatcher(tokenizer, text, log_level=0, limits=LLParserLimits(verbose_errors=False))


def reason(message: str) -> str:
    """Return an error of the library in one line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    first = lines[0] if lines else "unknown error"
    # An expression's error shows the expression first.
    line = errors[0].removeprefix("error: ") if errors else first.partition(" (in regex)")[0]
    return printable(line[:_MOST])
