"""The bench of the first token: each run is a process whose first byte of output is timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sections import first_token
from edgedec.errors import EdgedecError


def test_every_way_prints_something(tmp_path: Path) -> None:
    for arguments in first_token.WAYS.values():
        assert first_token._first_output(arguments, tmp_path) > 0
    assert (tmp_path / "bytecode").is_dir()
    assert (tmp_path / "edgedec" / "opened-paddings.json").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [("raise SystemExit('no model')", "no model"), ("pass", "it printed nothing")],
)
def test_a_run_that_fails_is_told(code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(EdgedecError, match=said):
        first_token._first_output(("-c", code), tmp_path)


def test_a_ratio_is_one_of_the_same_turn() -> None:
    found = {first_token.LIBRARIES: [1.0, 2.0, 4.0], "a way": [2.0, 6.0, 8.0]}
    libraries, way = first_token._rows(found)
    assert libraries["of_libraries"] == 1
    # The ratios of the turns are 2, 3 and 2; that of the medians is 3.
    assert way == {"way": "a way", "first_s": 6.0, "of_libraries": 2.0}
