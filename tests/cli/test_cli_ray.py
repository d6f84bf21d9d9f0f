"""``edgedec generate --ray`` on real clusters: several raylets, in processes of their own."""

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import small_disk
from ray_apart import Apart
from waiting import until

import edgedec
from benchmarks.ray_nodes import Nodes, cluster
from edgedec.cluster import models

pytestmark = [pytest.mark.slow, pytest.mark.ray]
TOO_SMALL = 40 << 20  # for any process that decodes
IDS = [f"p{n}" for n in range(16)]
SAMPLED = ("--max-new-tokens", 400, "--temperature", 0.8, "--seed", 7, "--drafter", "none",
           "--logit-bias", "0=-100000")  # fmt: skip


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("prompts") / "in.jsonl"
    lines = [{"id": name, "prompt": f"def {name}("} for name in IDS[:-1]]
    lines.append({"id": IDS[-1], "messages": [{"role": "user", "content": "Hello"}]})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes that no test harms."""
    with cluster(tmp_path_factory.mktemp("cluster"), 1, 1) as nodes:
        yield nodes


@pytest.fixture
def ask(start: Callable[..., Any], bundle: Path, prompts: Path, tmp_path: Path):
    """Start a batch on a cluster, or here, into ``out.jsonl``."""

    def call(nodes: Nodes | None, *more: object, out: str = "out.jsonl", **how: Any) -> Any:
        command = ["generate", bundle, "--prompts", prompts, "--out", tmp_path / out, *SAMPLED]
        if nodes is None:
            return start(*command, *more)
        return start(*command, *more, "--ray", nodes.address, env=nodes.env, **how)

    return call


def ended(process: "subprocess.Popen[bytes]", code: int = 0) -> str:
    """Return what a process said, at its end."""
    _, said = process.communicate(timeout=300)
    assert process.returncode == code, said.decode()
    return said.decode()


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def once_each(found: Sequence[dict[str, Any]], ids: Sequence[str] = IDS) -> bool:
    """Whether every id has exactly one result, which is no error."""
    counts = Counter(line["id"] for line in found)
    return counts == Counter(ids) and not any("error" in line for line in found)


def texts(found: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    return {line["id"]: line["token_ids"] for line in found}


def kept(file: Path) -> int:
    """How many whole lines a file has."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_the_same_seeds_give_the_same_texts_as_here(nodes: Nodes, ask, tmp_path: Path) -> None:
    ended(ask(None, out="here.jsonl"))
    said = ended(ask(nodes))
    here, there = lines(tmp_path / "here.jsonl"), lines(tmp_path / "out.jsonl")
    assert once_each(there)
    assert texts(there) == texts(here)
    assert {line["settings"] for line in there} == {line["settings"] for line in here}
    made = Counter(line["node"] for line in there)
    assert len(made) == 2, "one of the nodes did nothing"
    for name, count in made.items():
        assert f"{count} of {len(IDS)} on {name}" in said
    kernels = there[0]["kernels"]
    assert (kernels["format"], kernels["threads"]) == ("onnx", 1)
    assert "onnxruntime" in kernels["packages"]
    # The control: another seed's texts are others.
    ended(ask(nodes, "--seed", 8, out="other.jsonl"))
    assert texts(lines(tmp_path / "other.jsonl")) != texts(here)


def test_a_run_goes_on_here_and_there(nodes: Nodes, ask, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    ended(ask(None, out="here.jsonl"))
    whole = (tmp_path / "here.jsonl").read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(whole[:5]) + whole[5][:40])  # a line that was half written
    assert f"{out} already has 5 of 16 results" in ended(ask(nodes))
    found = lines(out)
    assert once_each(found)
    assert ["node" in line for line in found] == 5 * [False] + 11 * [True]
    assert texts(found) == texts([json.loads(line) for line in whole])
    before = out.read_bytes()
    ended(ask(nodes))
    ended(ask(None))
    assert out.read_bytes() == before


@pytest.mark.nightly
def test_a_raylet_that_is_killed(ask, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    more = ("--max-new-tokens", 1500)
    with cluster(tmp_path, 1, 1, 1) as nodes:
        process = ask(nodes, *more)
        lost = "(127.0.0.4)"
        until(lambda: process.poll() is not None or kept_by(out, "127.0.0.4"))
        assert process.poll() is None
        nodes.kill(2)
        said = ended(process)
    found = lines(out)
    assert once_each(found)
    assert f"{lost} lost a worker" in said
    assert "; to be done again: p" in said
    ended(ask(None, *more, out="here.jsonl"))
    assert texts(found) == texts(lines(tmp_path / "here.jsonl"))


@pytest.mark.nightly
def test_a_driver_that_is_killed(nodes: Nodes, ask, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    process = ask(nodes)
    until(lambda: process.poll() is not None or kept(out) >= 3)
    process.kill()
    process.communicate()
    first = out.read_bytes().splitlines(keepends=True)
    first = [line for line in first if line.endswith(b"\n")]
    assert 3 <= len(first) < len(IDS)
    ended(ask(nodes))
    assert once_each(lines(out))
    assert out.read_bytes().splitlines(keepends=True)[: len(first)] == first


@pytest.mark.parametrize(
    "sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_ctrl_c_leaves_a_file_to_go_on_with(nodes: Nodes, ask, tmp_path: Path, sent: int) -> None:
    out = tmp_path / "out.jsonl"
    process = ask(nodes)
    until(lambda: process.poll() is not None or kept(out) >= 3)
    process.send_signal(sent)
    said = ended(process, 130)
    assert said.splitlines()[-1] == "stopped: run the same command again to continue"
    assert "Traceback" not in said
    assert 3 <= len(lines(out)) < len(IDS)
    ended(ask(nodes))
    assert once_each(lines(out))


@pytest.mark.nightly
def test_nodes_that_cannot_take_part_say_why(ask, tmp_path: Path) -> None:
    other = tmp_path / "other" / "edgedec"
    shutil.copytree(Path(edgedec.__file__).parent, other)
    (other / "_version.py").write_text('__version__ = "0.0.9"\n')
    older = tmp_path / "older" / "edgedec"
    shutil.copytree(other, older, ignore=shutil.ignore_patterns("worker.py"))
    with cluster(tmp_path, 1) as nodes:
        for folder in (other, older):
            paths = os.pathsep.join([str(folder.parent), nodes.env["PYTHONPATH"]])
            nodes.add(1, {"PYTHONPATH": paths})
        nodes.add(1, memory=TOO_SMALL)
        # Ray's workers also import from the folder that the driver runs in.
        said = ended(ask(nodes, cwd=tmp_path))
        assert once_each(lines(tmp_path / "out.jsonl"))
        assert "(127.0.0.3) has edgedec 0.0.9, this machine has" in said
        assert "(127.0.0.4) has no edgedec.cluster.worker: it needs edgedec" in said
        memory = next(line for line in said.splitlines() if "(127.0.0.5)" in line)
        assert "of memory for Ray, the plan needs" in memory
    assert {line["node"].split()[-1] for line in lines(tmp_path / "out.jsonl")} == {"(127.0.0.2)"}


def test_no_node_that_can_is_one_line(ask, tmp_path: Path) -> None:
    with cluster(tmp_path, 0) as nodes:
        nodes.add(1, memory=TOO_SMALL)
        refused, last = ended(ask(nodes), 2).splitlines()
        assert "of memory for Ray, the plan needs" in refused
        assert last.startswith("edgedec: error: no node of the cluster can decode")


def test_a_machine_in_a_network_of_its_own(start, bundle: Path, prompts: Path, tmp_path) -> None:
    """It does not see the model's folder, and its network is cut in the middle."""
    model, out = tmp_path / "model", tmp_path / "out.jsonl"
    shutil.copytree(bundle, model)
    quick = {"RAY_health_check_period_ms": "300", "RAY_health_check_failure_threshold": "3",
             "RAY_health_check_timeout_ms": "1000"}  # fmt: skip
    command = ["generate", model, "--prompts", prompts, *SAMPLED, "--max-new-tokens", 1500]
    with Apart() as net, cluster(tmp_path, node_ip_address=net.here) as nodes:
        nodes.add(1, quick, node_ip_address=net.here)
        with net.node(nodes, tmp_path, model):
            process = start(*command, "--out", out, "--ray", nodes.address, env=nodes.env)
            until(lambda: process.poll() is not None or kept_by(out, net.there))
            assert process.poll() is None
            net.cut()
            said = ended(process)
    assert once_each(lines(out))
    assert said.count(f"sending {model}") == 1
    assert f"({net.there}) lost a worker" in said
    (sent,) = (path for path in (tmp_path / "cache-there" / "sent").iterdir() if path.is_dir())
    for name in models.describe(model)["files"]:
        assert (sent / name).read_bytes() == (model / name).read_bytes()
    ended(start(*command, "--out", tmp_path / "here.jsonl"))
    assert texts(lines(out)) == texts(lines(tmp_path / "here.jsonl"))


def kept_by(file: Path, address: str) -> bool:
    """Whether a file has a result of a node."""
    return file.exists() and f"({address})" in file.read_text("utf-8")


@pytest.mark.nightly
def test_a_disk_that_is_full(nodes: Nodes, ask, tmp_path: Path) -> None:
    with small_disk.mounted(tmp_path / "disk") as disk:
        filling = small_disk.fill(disk, leave=12_000)
        last = ended(ask(nodes, out="disk/out.jsonl"), 2).splitlines()[-1]
        assert "No space left on device: make room and run the same command again" in last
        assert 0 < len(lines(disk / "out.jsonl")) < len(IDS)
        filling.unlink()
        ended(ask(nodes, out="disk/out.jsonl"))
        assert once_each(lines(disk / "out.jsonl"))


@pytest.mark.nightly
def test_two_runs_into_one_file(nodes: Nodes, ask, tmp_path: Path) -> None:
    first = ask(nodes)
    until(lambda: first.poll() is not None or kept(tmp_path / "out.jsonl"))
    first.send_signal(signal.SIGSTOP)  # or it may be done before the others begin
    try:
        for second in (nodes, None):
            line = ended(ask(second), 2).splitlines()[-1]
            assert "out.jsonl: another run writes it: wait for its end" in line
    finally:
        first.send_signal(signal.SIGCONT)
    ended(first)
    assert once_each(lines(tmp_path / "out.jsonl"))


def test_another_token_is_one_line(nodes: Nodes, ask) -> None:
    other = type("Other", (), {"address": nodes.address})
    other.env = nodes.env | {"RAY_AUTH_TOKEN": 40 * "f"}
    (line,) = ended(ask(other), 2).splitlines()
    assert "does not let this machine in: one with a token needs RAY_AUTH_MODE=token" in line


def test_no_cluster_is_one_line(ask) -> None:
    nowhere = type("Nowhere", (), {"address": "127.0.0.1:9", "env": os.environ})
    (line,) = ended(ask(nowhere), 2).splitlines()
    assert line.startswith("edgedec: error: no Ray cluster answers at 127.0.0.1:9: start one")
