"""Measures a target that is spread over two of llama.cpp's RPC servers, by the network's delay.

The servers are processes on this machine. Their delay is the kernel's (``tc netem``, in a network
namespace each; root) or, where it has none, that of a relay (``benchmarks.delay``). All share the
machine's cores, so the figures show what delay costs and what drafts win back, not what two
machines compute.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bundles import GROWN, Suite
from edgedec.compare.drafters import PLAIN
from edgedec.compare.interleaved import compare
from edgedec.compare.records import Recorder, Row
from edgedec.errors import EdgedecError
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

_SERVER = "edgedec.runtimes.llamacpp.rpc_server"
_DELAYS_MS = (0.0, 1.0, 5.0, 20.0)
_SERVERS, _TOKENS = 2, 64
_PATIENCE_S = 60.0
HERE = "this machine"


@dataclass(frozen=True, slots=True)
class Where:
    """Where the target is: what delays its servers, by how much, and their addresses."""

    how: str
    delay_ms: float = 0.0
    servers: str | None = None


@dataclass(frozen=True, slots=True)
class Plainly:
    """The same pipeline without drafts."""

    pipeline: Pipeline

    def generate(self, prompt: Prompt, options: GenerateOptions | None = None) -> Any:
        """Decode to the end."""
        return self.pipeline.generate(prompt, replace(options or GenerateOptions(), drafter="none"))


def rpc(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare drafts with plain decoding at added round trips of 0, 1, 5 and 20 ms."""
    rows = []
    for preset in suite.bundles.sizes(shipped=None, grown=GROWN).values():
        target = suite.bundles.gguf("target", "q4_0", preset)
        rows.append(_row(suite, recorder, target, Where(HERE)))
        for delay_ms in _DELAYS_MS:
            with servers(delay_ms) as (names, how):
                rows.append(_row(suite, recorder, target, Where(how, delay_ms, ",".join(names))))
    return recorder.table(rows)


def _row(suite: Suite, recorder: Recorder, target: Path, where: Where) -> Row:
    draft = suite.bundles.gguf("draft", "q8_0")
    asked = GenerateOptions(max_new_tokens=_TOKENS, ignore_eos=True)
    options = suite.options(draft=draft, drafter="model", rpc=where.servers)
    with Pipeline.open(target, options) as pipeline:
        candidates: dict[str, Any] = {PLAIN: Plainly(pipeline), "drafted": pipeline}
        before = len(recorder.runs)
        found = compare(candidates, suite.code(), asked, recorder)
        runs = recorder.runs[before:]
    drafted = [run for run in runs if run["candidate"] == "drafted"]
    passes = sum(run["target_passes"] for run in drafted)
    return {
        "target_mb": target.stat().st_size / 1e6,
        "where": where.how,
        "round_trip_ms": where.delay_ms,
        "plain_tokens_per_second": 1 / median(found.tpot_s[PLAIN]),
        "drafted_tokens_per_second": 1 / median(found.tpot_s["drafted"]),
        "speedup": found.speedup("drafted"),
        "draft_length": sum(run["drafted_tokens"] for run in drafted) / passes,
        "block_efficiency": sum(run["tokens"] for run in drafted) / passes,
    }


@contextmanager
def servers(delay_ms: float) -> Iterator[tuple[list[str], str]]:
    """Run servers behind a delay; yield their addresses and what delays them.

    Raises:
        EdgedecError: a server did not start.

    """
    with ExitStack() as stack:
        if not delay_ms:
            ports = [stack.enter_context(_server("127.0.0.1")) for _ in range(_SERVERS)]
            yield [f"127.0.0.1:{port}" for port in ports], "loopback"
        elif kernel_delays():
            yield [stack.enter_context(apart(n, delay_ms)) for n in range(_SERVERS)], "netem"
        else:
            names = []
            for _ in range(_SERVERS):
                target, port = stack.enter_context(_server("127.0.0.1")), _free_port()
                relay = [sys.executable, "-m", "benchmarks.delay"]
                relay += [str(port), str(target), str(delay_ms)]
                stack.enter_context(_running(relay, "127.0.0.1", port))
                names.append(f"127.0.0.1:{port}")
            yield names, "relay"


def kernel_delays() -> bool:
    """Return whether this process may make namespaces, and the kernel can delay packets."""
    if not hasattr(os, "geteuid") or os.geteuid():
        return False
    if not (shutil.which("ip") and shutil.which("tc")):
        return False
    name = f"edgedec-try-{os.getpid()}"
    try:
        _quiet("ip", "netns", "add", name)
    except EdgedecError:
        return False
    try:
        _quiet(*_inside(name), "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        return True
    except EdgedecError:
        return False
    finally:
        _quiet("ip", "netns", "del", name)


@contextmanager
def apart(number: int, delay_ms: float) -> Iterator[str]:
    """Run a server in a network namespace whose packets are late in both directions."""
    name, near, far = f"edgedec-rpc-{number}", f"edgedec{number}a", f"edgedec{number}b"
    here, there, port = f"10.213.{number}.1", f"10.213.{number}.2", 50052
    late = ("root", "netem", "delay", f"{delay_ms / 2}ms")
    _quiet("ip", "netns", "add", name)
    try:
        _quiet("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        _quiet("ip", "address", "add", f"{here}/30", "dev", near)
        _quiet("ip", "link", "set", near, "up")
        _quiet(*_inside(name), "ip", "address", "add", f"{there}/30", "dev", far)
        _quiet(*_inside(name), "ip", "link", "set", far, "up")
        if delay_ms:
            _quiet("tc", "qdisc", "add", "dev", near, *late)
            _quiet(*_inside(name), "tc", "qdisc", "add", "dev", far, *late)
        command = [*_inside(name), sys.executable, "-m", _SERVER, "--threads", "1"]
        with _running([*command, "--host", there, "--port", str(port)], there, port):
            yield f"{there}:{port}"
    finally:
        subprocess.run(("ip", "link", "del", near), capture_output=True, check=False)
        _quiet("ip", "netns", "del", name)


def inside(number: int, *command: str) -> None:
    """Run a command in the namespace of ``apart(number)``."""
    _quiet(*_inside(f"edgedec-rpc-{number}"), *command)


def _inside(name: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", name)


def _quiet(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "".join(done.stderr.strip().splitlines()[-1:])
        raise EdgedecError(f"{' '.join(command)}: {last}")


@contextmanager
def _server(host: str) -> Iterator[int]:
    port = _free_port()
    command = [sys.executable, "-m", _SERVER, "--threads", "1", "--host", host]
    with _running([*command, "--port", str(port)], host, port):
        yield port


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def _running(command: Sequence[str], host: str, port: int) -> Iterator[None]:
    """Run a process that listens, from the time it does until the block ends."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            end = time.monotonic() + _PATIENCE_S
            while not _listens(host, port):
                if process.poll() is not None or time.monotonic() > end:
                    raise EdgedecError(f"{' '.join(command)}: nothing listens on {host}:{port}")
                time.sleep(0.05)
            yield
        finally:
            process.kill()


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False
