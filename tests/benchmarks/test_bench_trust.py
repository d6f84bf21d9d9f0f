"""The bench section that holds the simulation against what is measured."""

import io
from types import SimpleNamespace

import pytest

from benchmarks.sections import trust
from edgedec.compare.records import Recorder


def test_a_summary_is_of_one_world():
    rows = [
        {"world": world, "plan": "p", "error": error}
        for world, error in (("paced", 0.1), ("paced", -0.3), ("paced", 0.0), ("cores", -0.5))
    ]
    assert list(trust._summaries(rows)) == [
        {"world": "paced", "plan": "all 3", "median_error": 0.1, "largest_error": 0.3},
        {"world": "cores", "plan": "all 1", "median_error": 0.5, "largest_error": 0.5},
    ]


@pytest.mark.slow
def test_paced_devices_are_predicted_on_the_texts_that_they_write(monkeypatch):
    monkeypatch.setattr(trust, "_TOKENS", 12)
    monkeypatch.setattr(trust, "_SHARES", (1 / 3,))
    suite = SimpleNamespace(code=lambda: [("f", "def mean(values):\n")])
    records = io.StringIO()
    rows = trust._paced(suite, Recorder(records, "test"))
    assert len(rows) == len(records.getvalue().splitlines()) == len(trust._PLANS)
    for row in rows:
        # A busy machine only makes sleeps longer: what is measured is never much faster.
        assert row["measured"] < 1.1 * row["predicted"]
        assert row["measured"] > 0.2 * row["predicted"]
