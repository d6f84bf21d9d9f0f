"""The section ``rpc``: its relay is late, its servers are there, its rows say what was drafted."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

import pytest
from rpc_servers import free_port
from waiting import Apart, until

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from benchmarks.sections import rpc as section
from edgedec.errors import PassFailed
from edgedec.pipeline import Pipeline
from edgedec.runtimes import registry
from edgedec.runtimes.llamacpp import connections, remote
from edgedec.runtimes.llamacpp.link import Link

needs_rpc = pytest.mark.skipif(remote.client() is None, reason="llama.cpp was built without RPC")
ROOT = Path(__file__).parents[2]
IN_NAMESPACES = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("ip") is not None
needs_namespaces = pytest.mark.skipif(not IN_NAMESPACES, reason="no right to make namespaces")


def echo(listening: socket.socket) -> None:
    with listening.accept()[0] as near:
        while data := near.recv(1 << 16):
            near.sendall(data)


@pytest.mark.parametrize("round_trip_ms", [0, 60])
def test_a_relay_is_late_and_loses_nothing(round_trip_ms: int) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        target = listening.getsockname()[1]
        command = [sys.executable, "-m", "benchmarks.delay", str(port), str(target)]
        with subprocess.Popen([*command, str(round_trip_ms)], cwd=ROOT) as relay:
            try:
                answers = Apart(lambda: echo(listening))
                near = _connected(port)
                sent = bytes(range(256)) * 4096
                begin = perf_counter()
                with near:
                    writing = Apart(lambda: near.sendall(sent))
                    got = b""
                    while len(got) < len(sent):
                        got += near.recv(1 << 16)
                        if len(got) < 1 << 17:
                            first_s = perf_counter() - begin
                    writing.result()
                answers.result()  # the end of the connection arrives as well
            finally:
                relay.kill()
    assert got == sent
    assert first_s * 1e3 >= round_trip_ms


def _connected(port: int) -> socket.socket:
    found: list[socket.socket] = []

    def tried() -> bool:
        try:
            found.append(socket.create_connection(("127.0.0.1", port), 5))
        except OSError:
            return False
        return True

    until(tried)
    return found[0]


@needs_rpc
def test_servers_behind_a_delay() -> None:
    with section.servers(0.0) as (names, how):
        assert how == "loopback"
        assert len(registry.remote_devices(",".join(names))) == 2
    with section.servers(1.0) as (names, how):
        assert how in ("netem", "relay")
        assert len(registry.remote_devices(",".join(names))) == 2


@needs_rpc
@needs_namespaces
def test_a_network_that_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word from the other side; the system gives the connection up, so the pass ends."""
    monkeypatch.setattr(connections, "SILENCE_S", 3.0)
    file = write_tiny_gguf(tmp_path / "tiny.gguf", layers=4)
    with section.apart(7, 0.0) as name, Pipeline.open(file, plan="none", rpc=name) as pipeline:
        stream = pipeline.stream([5, 6, 7], max_new_tokens=400, ignore_eos=True)
        next(stream)
        section.inside(7, "ip", "link", "set", "edgedec7b", "down")
        with pytest.raises(PassFailed, match=f"{name} was lost in a pass"):
            list(stream)


@needs_rpc
def test_the_system_watches_the_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    assert watched(file) == {1}
    monkeypatch.setattr(Link, "watch", lambda link: None)  # the control
    assert watched(file) == {0}


def watched(file: Path) -> set[int]:
    """Whether the connections to the servers have SO_KEEPALIVE."""
    with ExitStack() as stack:
        names, _ = stack.enter_context(section.servers(0.0))
        stack.enter_context(Pipeline.open(file, plan="none", drafter="none", rpc=",".join(names)))
        ports = {int(name.rpartition(":")[2]) for name in names}
        return {
            int(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0)
            for there, one in connections.connections()
            if there[1] in ports
        }
