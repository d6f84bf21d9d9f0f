"""What is compiled, what is refused, and with which line."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import KINDS, byte_level

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.grammar import spec
from edgedec.grammar.grammars import Grammars
from edgedec.grammar.matching import GrammarConstraint
from edgedec.grammar.spec import Grammar
from edgedec.text.tokenizer import Tokenizer

pytest.importorskip("llguidance")

GBNF = 'root ::= "yes" | "no" | num\nnum ::= [0-9]+\n'
LARK = 'start: "yes" | "no" | NUM\nNUM: /[0-9]+/\n'


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(Tokenizer(byte_level(), {}), 341, (0,))


def write(constraint: GrammarConstraint, tokenizer: Tokenizer, data: bytes, size: int) -> bool:
    """Whether a text can be written byte by byte or by longer tokens, and may end there."""
    tokens = tokenizer.token_bytes(size)
    path: list[int] = []
    while data:
        mask = constraint.allowed(path)
        if mask is None:
            return False
        fitting = [i for i in np.flatnonzero(mask) if tokens[i] and data.startswith(tokens[i])]
        if not fitting:
            return False
        path.append(int(max(fitting, key=lambda i: len(tokens[i] or b""))))
        data = data[len(tokens[path[-1]] or b"") :]
    mask = constraint.allowed(path)
    return mask is not None and any(mask[token] for token in constraint._vocabulary.eos_ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [GBNF, LARK])
def test_a_grammar_allows_its_texts_and_no_others(kind: str, source: str) -> None:
    tokenizer = Tokenizer(KINDS[kind](), {})
    size, eos = tokenizer.vocab_size, 0 if kind == "byte-level" else 2
    made = Grammars(tokenizer, size, (eos,))
    for text, allowed in {
        b"yes": True,
        b"no": True,
        b"0110": True,
        b"ye": False,
        b"7a": False,
    }.items():
        constraint = made.constraint(spec.grammar(source))
        assert write(constraint, tokenizer, text, size) == allowed, text


def test_json_is_written_on_one_line_as_python_writes_it(grammars: Grammars) -> None:
    tokenizer = Tokenizer(byte_level(), {})
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "é": {"type": "array"}}}
    value = {"a": 1, "é": [1, {"b": None}]}
    written = json.dumps(value, ensure_ascii=False).encode()
    assert write(grammars.constraint(spec.json_schema(schema)), tokenizer, written, 341)
    for other in (json.dumps(value, indent=1).encode(), b'{"a":1}', b'{"a": "1"}', b'{"a": 1} '):
        assert not write(grammars.constraint(spec.json_schema(schema)), tokenizer, other, 341)
    spaced = {**schema, "x-guidance": {"whitespace_flexible": True}}
    indented = json.dumps(value, indent=1, ensure_ascii=False).encode()
    assert write(
        grammars.constraint(spec.json_schema(json.dumps(spaced))), tokenizer, indented, 341
    )
    assert write(grammars.constraint(spec.json_object()), tokenizer, b"{}", 341)
    assert not write(grammars.constraint(spec.json_object()), tokenizer, b"[]", 341)


def test_special_tokens_are_never_text(grammars: Grammars) -> None:
    """An expression that allows every byte, and a grammar that names a special token."""
    mask = grammars.constraint(spec.regex("(?s:.)*")).allowed([])
    assert mask is not None
    special = Tokenizer(byte_level(), {}).special_ids
    assert {token for token in special if mask[token]} == {0}  # the end of text
    many = Grammars(Tokenizer(KINDS["llama"](), {}), 400, (2,))
    with pytest.raises(InputError, match="allows nothing here that the model's vocabulary"):
        many.constraint(spec.grammar("start: <[1]>"))


CHAIN = "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(4000)) + '\nr4000: "a"'
CANNOT: dict[str, tuple[Grammar, str]] = {
    "open group": (spec.regex("(a"), "the regular expression cannot be used: unclosed group"),
    "look-ahead": (spec.regex("(?=a)b"), "look-around"),
    "unknown rule": (spec.grammar("start: foo"), 'unknown name: "foo"'),
    "no Lark": (spec.grammar("hello"), "the grammar cannot be used"),
    "no GBNF": (spec.grammar("root ::= ("), "the grammar cannot be used"),
    "no end": (spec.grammar("start: start"), "the grammar cannot be used"),
    "type": (
        spec.json_schema({"type": "foo"}),
        "the JSON schema cannot be used: Invalid type: foo",
    ),
    "contradiction": (
        spec.json_schema({"allOf": [{"type": "string"}, {"type": "integer"}]}),
        "Unsatisfiable",
    ),
    "elsewhere": (spec.json_schema({"$ref": "http://127.0.0.1:9/x"}), "does not fetch"),
    "a file": (spec.json_schema({"$ref": "file:///etc/passwd"}), "does not fetch"),
    "exponential": (
        spec.json_schema(
            {
                "allOf": [
                    {"anyOf": [{"properties": {f"p{i}{j}": {"type": "string"}}} for j in range(9)]}
                    for i in range(12)
                ]
            }
        ),
        "the JSON schema",
    ),
    "overflows the stack": (spec.grammar(CHAIN), "the grammar is too complex: "),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_cannot_be_used_is_one_line(name: str, grammars: Grammars) -> None:
    grammar, expected = CANNOT[name]
    with pytest.raises(InputError) as caught:
        grammars.constraint(grammar).forced([], 4)
    assert expected in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 450
    grammars.constraint(spec.regex("a+"))  # the next one is compiled


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: spec.json_schema("{"), "the JSON schema is not JSON: "),
        (lambda: spec.json_schema("[" * 100_000), "the JSON schema is not JSON: nested too deeply"),
        (lambda: spec.json_schema([1]), "expected an object"),
        (lambda: spec.json_schema(False), "nothing satisfies it"),
        (lambda: spec.json_schema({"a": object()}), "cannot be written as JSON"),
        (lambda: spec.regex(""), "the regular expression is empty"),
        (lambda: spec.regex("a" * 20_000), "expected at most 16 KiB"),
        (lambda: spec.regex("\ud800"), "not valid UTF-8"),
        (lambda: spec.grammar(7), "expected text"),
    ],
)
def test_what_is_not_given_rightly_is_said(make: Any, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert expected in str(caught.value)


def test_a_model_without_an_end_is_refused() -> None:
    with pytest.raises(InputError, match="no end-of-text token"):
        Grammars(Tokenizer(byte_level(), {}), 341, ()).constraint(spec.regex("a"))


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    made = Grammars(Tokenizer(byte_level(), {}), 341, (0,))
    with pytest.raises(RuntimeUnavailable, match=r"llguidance.*pip install.*\[grammar\]"):
        made.constraint(spec.regex("a"))


def test_a_twin_works_in_another_thread(grammars: Grammars) -> None:
    constraint = grammars.constraint(spec.regex("(ab|cd)*"))
    twin, seen = constraint.twin(), []
    thread = threading.Thread(target=lambda: seen.append(twin.allowed([])))
    thread.start()
    thread.join()
    assert np.array_equal(seen[0], constraint.allowed([]))


def test_tokens_that_are_not_allowed_are_not_pushed(grammars: Grammars) -> None:
    with pytest.raises(ValueError, match="does not allow"):
        grammars.constraint(spec.regex("a")).push([5])
