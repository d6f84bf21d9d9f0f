"""A file of results has one line for each id."""

import json
import os
from pathlib import Path

import pytest
from ray_workers import KeepsAll

from edgedec.batch.jobs import Job
from edgedec.batch.run import Results
from edgedec.errors import InputError

SETTINGS = {"seed": 7}
JOB = Job("a", "x")


@pytest.mark.skipif(os.name == "nt", reason="files have no such locks there")
def test_one_run_at_a_time_writes_a_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first = Results(out, SETTINGS)
    first.add(JOB, {"text": "first"})
    out.write_bytes(out.read_bytes() + b'{"id": "')  # a line that the first run is writing
    with pytest.raises(InputError, match="another run writes it"):
        Results(out, SETTINGS)
    assert out.read_bytes().endswith(b'{"id": "')
    first.close()
    Results(out, SETTINGS).close()  # the control
    assert out.read_bytes().endswith(b"}\n")


def test_an_id_whose_prompt_has_changed_is_no_result_of_it(tmp_path: Path) -> None:
    """Ids are line numbers where none are given, and a line may be put before others."""
    out = tmp_path / "out.jsonl"
    results = Results(out, SETTINGS)
    results.add(JOB, {"text": "first"})
    results.close()
    later = Results(out, SETTINGS)
    later.check([JOB, Job("b", "y")])  # the control
    for prompt in ("y", [{"role": "user", "content": "x"}]):
        with pytest.raises(InputError, match="of the id 'a' is that of another prompt"):
            later.check([Job("b", "x"), Job("a", prompt)])
    later.close()
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    out.write_text("".join(json.dumps({k: v for k, v in one.items() if k != "prompt_digest"}) + "\n"
                           for one in lines), "utf-8")  # fmt: skip
    earlier = Results(out, SETTINGS)  # a file of an earlier version
    earlier.check([Job("a", "y")])
    earlier.close()


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
