"""Constrained texts of the pair that ships: valid, and the same with and without speculation."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kinds import in_full

from edgedec import Pipeline
from edgedec.errors import InputError
from edgedec.pipeline import Generation

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "cc"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "seed": 3},
    {"temperature": 1.3, "seed": 4, "top_p": 0.9, "frequency_penalty": 0.4},
    {"temperature": 0.9, "seed": 5, "logprobs": 2},
]
FORMS: list[dict[str, Any]] = [
    {"json_schema": SCHEMA},
    {"regex": r"def [a-z_]{3,9}\(self\):\n    return [0-9]{1,4}\n"},
    {"grammar": 'root ::= "[" item ("," item){0,3} "]"\nitem ::= [0-9]+ | "None"\n'},
    {"json_mode": True, "max_new_tokens": 24},
]
ASKED = [{"max_new_tokens": 80, **form, **setting} for form in FORMS for setting in SETTINGS]


@pytest.fixture(scope="module")
def plain() -> Any:
    with Pipeline.open("demo", drafter="none", batch_invariant=True, plan="none") as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def expected(plain: Pipeline) -> list[Generation]:
    """Plain texts of all forms and settings."""
    return [plain.generate("value = ", **asked) for asked in ASKED]


@pytest.mark.parametrize("draft", in_full(["hybrid", "lookup", "recycle", "text", "adaptive"]))
def test_the_same_text_as_plain_decoding(draft: str, expected: list[Generation]) -> None:
    opened = {"drafter": draft, "batch_invariant": True, "draft_length": 4, "plan": "none"}
    forced = 0
    with Pipeline.open("demo", **opened) as pipeline:  # type: ignore[arg-type]
        for asked, wanted in zip(ASKED, expected, strict=True):
            found = pipeline.generate("value = ", **asked)
            assert (found.text, found.token_ids) == (wanted.text, wanted.token_ids)
            assert found.finish_reason == wanted.finish_reason
            for one, other in zip(found.events, wanted.events, strict=True):
                assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            forced += found.metrics.forced_tokens
    assert forced


def test_texts_are_valid_and_end(plain: Pipeline) -> None:
    for seed in range(4):
        setting = {"max_new_tokens": 200, "temperature": 1.5, "seed": seed}
        text = plain.generate("value = ", json_schema=json.dumps(SCHEMA), **setting)
        jsonschema.validate(json.loads(text.text), SCHEMA)
        assert text.finish_reason == "eos"
        found = plain.generate("x = ", regex=FORMS[1]["regex"], **setting)
        assert re.fullmatch(FORMS[1]["regex"], found.text)


def test_a_text_that_is_cut_says_so(plain: Pipeline) -> None:
    found = plain.generate("value = ", json_schema=SCHEMA, max_new_tokens=5)
    assert found.finish_reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(found.text)


def test_a_stop_string_ends_a_constrained_text(plain: Pipeline) -> None:
    found = plain.generate("value = ", json_schema=SCHEMA, stop=', "age"')
    assert found.finish_reason == "stop"
    assert found.text.startswith('{"name": "')


def test_one_form_at_a_time(plain: Pipeline) -> None:
    with pytest.raises(InputError, match="regex and grammar: expected one of them"):
        plain.stream("x", regex="a", grammar="start: A")
    with pytest.raises(InputError, match="ends where the grammar does"):
        plain.stream("x", regex="a", ignore_eos=True)
    with pytest.raises(InputError, match="unclosed group"):
        plain.stream("x", regex="(a")
    assert plain.generate("x", max_new_tokens=2).text  # the pipeline is usable
