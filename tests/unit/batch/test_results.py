"""A file of results has one line for each id."""

import json
from pathlib import Path

import pytest
from ray_workers import KeepsAll

from edgedec.batch.jobs import Job
from edgedec.batch.run import Results
from edgedec.errors import InputError

SETTINGS = {"seed": 7}
JOB = Job("a", "x")


def written(kind: type[Results], out: Path) -> list[str]:
    """Add two results of one id; return the texts in the file."""
    results = kind(out, SETTINGS)
    for text in ("first", "second"):
        results.add(JOB, {"text": text})
    results.close()
    return [json.loads(line)["text"] for line in out.read_text("utf-8").splitlines()]


def test_the_first_result_of_an_id_stays(tmp_path: Path) -> None:
    assert written(Results, tmp_path / "out.jsonl") == ["first"]
    # The control, and what a later run says about such a file.
    twin = tmp_path / "twin.jsonl"
    assert written(KeepsAll, twin) == ["first", "second"]
    before = twin.read_bytes()
    with pytest.raises(InputError, match=r"twin\.jsonl:2: a second result of the id 'a'"):
        Results(twin, SETTINGS)
    assert twin.read_bytes() == before
