"""Prompts whose workers are lost, on a real cluster: again elsewhere, and at last given up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ray_nodes import cluster
from edgedec.cluster.run import MOST_LOSSES, MOST_TRIES

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.ray]
# A driver that runs a crew of ``Dying`` workers, each with a core; its arguments: a cluster's
# address, the file, and the prompts that end a process.
DRIVER = """
import json, sys
from pathlib import Path
from ray_workers import POISON, Dying
from edgedec.batch.jobs import Job
from edgedec.batch.run import Results, settings
from edgedec.cluster.common import common, decisive
from edgedec.cluster.connect import connected
from benchmarks.ray_nodes import cluster
from edgedec.cluster.run import Crew
from edgedec.generation.options import GenerateOptions
from edgedec.loading.options import OpenOptions

asked = GenerateOptions(16)
run = common("demo", OpenOptions(), asked, asked)
results = Results(Path(sys.argv[2]), settings(decisive(run, None), asked))
said = []
with connected(sys.argv[1]):
    crew = Crew(run, results, 1, said.append, lambda: None, Dying)
    crew.decode([Job(str(n), POISON if str(n) in sys.argv[3:] else f"def f{n}(") for n in range(9)])
print(json.dumps([crew.failed, said]))
"""


@pytest.mark.parametrize(
    ("cores", "poison"),
    [((1, 1), ["2"]), ((1,), ["2", "3"]), ((2,), ["0", "1", "2"])],
    ids=["two nodes", "one worker", "two workers of a node"],
)
def test_prompts_that_end_every_process_are_given_up_and_the_others_are_not(
    tmp_path: Path, cores: tuple[int, ...], poison: list[str]
) -> None:
    out = tmp_path / "out.jsonl"
    with cluster(tmp_path, *cores) as nodes:
        command = [sys.executable, "-c", DRIVER, nodes.address, str(out), *poison]
        done = subprocess.run(command, env=nodes.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failed, said = json.loads(done.stdout)
    assert failed == len(poison)
    # A busy machine may lose one more, which had no prompt in hand.
    assert sum("lost a worker" in line for line in said) >= MOST_TRIES * len(poison)
    assert not any("no other is started" in line for line in said)
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert sorted(line["id"] for line in found) == [str(n) for n in range(9)]
    errors = {line["id"]: line["error"] for line in found if "error" in line}
    assert sorted(errors) == poison
    for error in errors.values():
        assert error.startswith(f"given up: {MOST_TRIES} processes were lost")


def test_a_cluster_that_ends_every_process_is_given_up(tmp_path: Path) -> None:
    """Three prompts in a row are given up; then no node is left, and the rest has no line."""
    out = tmp_path / "out.jsonl"
    with cluster(tmp_path, 1) as nodes:
        poison = [str(n) for n in range(9)]
        command = [sys.executable, "-c", DRIVER, nodes.address, str(out), *poison]
        done = subprocess.run(command, env=nodes.env, capture_output=True, text=True, check=False)
    assert "no node of the cluster can decode: 3 results are there" in done.stderr
    assert out.read_bytes().count(b"\n") == MOST_LOSSES // MOST_TRIES == 3
