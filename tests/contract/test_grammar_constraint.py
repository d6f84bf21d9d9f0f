"""The constraint contract holds for compiled grammars, with tokenizers of both families."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from tiny_tokenizers import byte_level, llama

from edgedec.grammar import spec
from edgedec.grammar.grammars import Grammars
from edgedec.grammar.matching import GrammarConstraint
from edgedec.testing import ConstraintContract
from edgedec.text.tokenizer import Tokenizer

pytest.importorskip("llguidance")

Make = Callable[[], GrammarConstraint]
SCHEMA = {
    "type": "object",
    "properties": {
        "index": {"type": "integer"},
        "words": {"type": "array", "items": {"type": "string"}, "minItems": 9},
    },
    "required": ["index", "words"],
}


@functools.cache
def byte_wise(columns: int) -> Grammars:
    return Grammars(Tokenizer(byte_level(), {}), columns, (0,))


@functools.cache
def pieces() -> Grammars:
    return Grammars(Tokenizer(llama(), {"bos_token": "<s>", "eos_token": "</s>"}), 400, (2,))


class TestByteLevel(ConstraintContract):
    EOS = 0

    @pytest.fixture
    def make(self) -> Make:
        return lambda: byte_wise(352).constraint(spec.json_schema(SCHEMA))  # padded columns


class TestSentencePiece(ConstraintContract):
    EOS = 2

    @pytest.fixture
    def make(self) -> Make:
        return lambda: pieces().constraint(spec.json_schema(SCHEMA))


class TestExpression(ConstraintContract):
    EOS = 0

    @pytest.fixture
    def make(self) -> Make:
        pattern = "def [a-z]{6}[^a]?(left|right), (hello|world)( over the lazy dog)+[0-9]*"
        return lambda: byte_wise(341).constraint(spec.regex(pattern))
