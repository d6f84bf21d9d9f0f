"""The bench of batches on a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ray_nodes import cluster
from benchmarks.sections import ray as section


def test_the_rate_is_that_of_the_middle() -> None:
    slow_start = [(9.0, 1), *((10 + n / 10, n) for n in range(2, 100)), (99.0, 100)]
    assert section.middle_rate(slow_start, 100) == pytest.approx(10)
    assert section.middle_rate([(t * 2, n) for t, n in slow_start], 100) == pytest.approx(5)


def test_overhead_is_that_of_a_turn() -> None:
    def run(rate: float) -> section.Row:
        return {"texts_per_second": rate, "first_s": 1.0}

    found = section.row(2, [run(10), run(20), run(5)], [run(11), run(22), run(9)])
    assert found["overhead"] == pytest.approx(0.1)
    assert (found["texts_per_second"], found["local_texts_per_second"]) == (10, 11)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.ray
def test_both_sides_and_many_prompts(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as nodes:
        here = section.batch(tmp_path / "here", 2, None, texts=20)
        there = section.batch(tmp_path / "there", 2, nodes, texts=20)
        found = section.many(tmp_path / "many", nodes, prompts=200)
    for side in (here, there):
        assert side["texts_per_second"] > 0
        assert side["first_s"] > 0
    assert 10 < found["driver_mb"] < 1000
    assert 10 < found["worker_mb"] < 1000
