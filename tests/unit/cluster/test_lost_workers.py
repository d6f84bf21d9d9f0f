"""Prompts whose workers are lost, on a real cluster: again elsewhere, and at last given up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ray_nodes import cluster
from edgedec.cluster.run import MOST_TRIES

pytestmark = [pytest.mark.slow, pytest.mark.ray]
# A driver that runs a crew of ``Dying`` workers; its arguments: a cluster's address, and the file.
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
    crew = Crew(run, results, None, said.append, lambda: None, Dying)
    crew.decode([Job(str(n), POISON if n == 2 else f"def f{n}(") for n in range(9)])
print(json.dumps([crew.failed, said]))
"""


def test_a_prompt_that_ends_every_process_is_given_up_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    with cluster(tmp_path, 1, 1) as nodes:
        command = [sys.executable, "-c", DRIVER, nodes.address, str(out)]
        done = subprocess.run(command, env=nodes.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failed, said = json.loads(done.stdout)
    assert failed == 1
    assert sum("lost a worker" in line for line in said) == MOST_TRIES
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert sorted(line["id"] for line in found) == [str(n) for n in range(9)]
    (error,) = (line for line in found if "error" in line)
    assert error["id"] == "2"
    assert error["error"].startswith(f"given up: {MOST_TRIES} processes were lost")
