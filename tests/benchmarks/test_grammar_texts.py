"""Texts of random schemas that end are valid; 1,000 of them in the slow suite."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.sections.grammar import random_schema, texts
from edgedec import Pipeline
from edgedec.compare.records import Recorder

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")


@pytest.mark.parametrize(
    "count",
    [
        20,
        pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)
def test_texts_of_random_schemas_are_valid(count: int) -> None:
    records: list[dict[str, Any]] = []
    with (
        Pipeline.open("demo", drafter="none", plan="none") as plain,
        Pipeline.open("demo", plan="none") as drafted,
    ):
        row = texts((plain, drafted), count, Recorder(records.append, "grammar"))
    assert row["valid"] == row["ended"]
    assert min(row["ended"]) >= 0.95 * count
    assert sum(record.get("forced", 0) for record in records)


def test_schemas_are_valid_and_differ() -> None:
    schemas = [random_schema(seed) for seed in range(50)]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    assert len({json.dumps(schema) for schema in schemas}) > 40
    assert schemas[7] == random_schema(7)
