"""``--rpc`` on the command line: devices, texts, plans, refusals, and a server that is killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rpc_servers import RpcServer, free_port, rpc_servers
from waiting import LIMIT_S, Apart, until

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

import tiny_bundles

from edgedec.export import ExportOptions
from edgedec.runtimes.llamacpp import remote

needs_rpc = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")
PROMPT = "def add(left, right):"
Run = Callable[..., Any]


@pytest.fixture(scope="session")
def file(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rpc")
    options = ExportOptions(
        checkpoints / "target", folder, formats=("gguf",), weights="q8_0", parity=False
    )
    (found,) = (tiny_bundles.kept(options) / "target").glob("*.gguf")
    return found


@pytest.fixture
def servers() -> Iterator[list[RpcServer]]:
    with rpc_servers(2) as running:
        yield running


@needs_rpc
def test_devices_show_each_server(run: Run, servers: list[RpcServer]) -> None:
    names = ",".join(server.name for server in servers)
    found = json.loads(run("devices", "--no-try", "--json", "--rpc", names).stdout)["found"]
    there = [one["device"] for one in found if one["device"]["name"].startswith("rpc:")]
    assert [device["name"] for device in there] == [f"rpc:{server.name}" for server in servers]
    assert all(device["memory_total"] > 1 << 20 for device in there)
    shown = run("devices", "--no-try", "--rpc", names).stdout
    assert all(f"rpc:{server.name}" in shown for server in servers)
    assert "rpc:" not in run("devices", "--no-try").stdout


@needs_rpc
@pytest.mark.slow
def test_profile_and_plan(
    run: Run, file: Path, servers: list[RpcServer], each_place_once: None
) -> None:
    names = ",".join(server.name for server in servers)
    found = json.loads(run("plan", file, "--rpc", names, "--json", "--new-tokens", "16").stdout)
    used = {one["plan"]["target"]["device"] for one in found["candidates"]}
    assert used == {"cpu", f"rpc:{names}"}
    drafts = [one["plan"]["draft"] for one in found["candidates"]]
    assert not any("rpc:" in json.dumps(draft) for draft in drafts)


@needs_rpc
def test_a_killed_server_leaves_the_text_and_one_line(
    start: Callable[..., subprocess.Popen[bytes]], file: Path
) -> None:
    with rpc_servers(1) as (server,):
        asked = ("generate", file, PROMPT, "--plan", "none", "-n", "3000", "--rpc", server.name)
        process = start(*asked, env=os.environ | {"PYTHONUNBUFFERED": "1"})
        assert process.stdout is not None
        begun = process.stdout.read(8)
        server.kill()
        rest, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2
    assert len(begun + rest) >= 8
    (line,) = [each for each in errors.decode().splitlines() if "error" in each]
    assert line.startswith("edgedec: error: ")
    assert f"{server.name} was lost in a pass" in line
    assert b"Traceback" not in errors


@needs_rpc
def test_a_chat_goes_on_after_a_lost_server(
    start: Callable[..., subprocess.Popen[bytes]], file: Path
) -> None:
    with rpc_servers(1) as (server,):
        asked = ("chat", file, "--plan", "none", "-n", "3", "--rpc", server.name)
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        process = start(*asked, env=environment, stderr=subprocess.STDOUT)
        said = Said(process)
        said.line("a", until_told="3 tokens in", times=1)
        server.kill()
        said.line("b", until_told="was lost in a pass", times=1)
        server.start()
        said.line("c", until_told="3 tokens in", times=2)
        said.end()
    assert process.returncode == 0, said.text


class Said:
    """A conversation with a process, whose output is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.text = ""
        self._process = process
        self._reading = Apart(self._read)

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 4096):
            self.text += data.decode()

    def line(self, text: str, *, until_told: str, times: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()
        until(lambda: self.text.count(until_told) >= times or not self._reading.running)
        assert self.text.count(until_told) == times, self.text

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reading.result()
        self._process.wait(LIMIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


# -- refusals, which need no server -------------------------------------------------------------


@pytest.mark.parametrize("command", ["generate", "devices", "profile", "plan"])
def test_public_addresses(run: Run, one_line: Callable[..., str], file: Path, command: str) -> None:
    words = {"generate": (file, "a"), "devices": ("--no-try",)}.get(command, (file,))
    line = one_line(run(command, *words, "--rpc", "8.8.8.8:50052"))
    assert "8.8.8.8 is not a private address" in line
    assert "--rpc-trust" in line


def test_malformed_and_absent(run: Run, one_line: Callable[..., str], file: Path) -> None:
    assert "expected HOST:PORT" in one_line(run("generate", file, "a", "--rpc", "127.0.0.1"))
    if remote.client() is None:
        line = one_line(run("generate", file, "a", "--rpc", "127.0.0.1:1"))
        assert "-DGGML_RPC=on" in line
        return
    name = f"127.0.0.1:{free_port()}"
    assert "no server answers" in one_line(run("generate", file, "a", "--rpc", name))


def test_doctor_says_whether(run: Run) -> None:
    told = json.loads(run("doctor", "--json").stdout)["rpc"]
    assert told["built_in"] is (remote.client() is not None)
    assert told["built_in"] or "-DGGML_RPC=on" in told["install"]
