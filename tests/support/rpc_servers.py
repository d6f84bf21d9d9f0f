"""llama.cpp's RPC servers in processes of their own, on loopback."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from waiting import until

from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree

_MODULE = "edgedec.runtimes.llamacpp.rpc_server"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class RpcServer:
    """A server on loopback, or where ``host`` and the words before its command put it.

    Attributes:
        name: ``HOST:PORT``.

    """

    def __init__(self, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.port = port or free_port()
        self.name = f"{host}:{self.port}"
        self._host = host
        self.start()

    def start(self) -> None:
        """Start it, again if it was killed, and wait until it listens."""
        command = [sys.executable, "-m", _MODULE, "--host", self._host, "--threads", "1"]
        paths = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._listens)

    def _listens(self) -> bool:
        assert self._process.poll() is None, "the server has ended"
        with suppress(OSError), socket.create_connection((self._host, self.port), 1):
            return True
        return False

    def kill(self) -> None:
        """End it at once, as a machine that loses power does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def rpc_servers(count: int) -> Iterator[list[RpcServer]]:
    """Run servers on loopback, and end them afterwards."""
    running: list[RpcServer] = []
    try:
        for _ in range(count):
            running.append(RpcServer())
        yield running
    finally:
        for server in running:
            server.kill()


class CountingRelay:
    """Forwards one connection after the other to a server, and counts round trips.

    Attributes:
        name: ``HOST:PORT`` of the relay.
        turns: how often the server answered something that was asked.
        forge: what it makes of the server's bytes; None ends the connection.

    """

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.turns = 0
        self.forge: Callable[[bytes], bytes | None] = lambda data: data
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._server.port))
                with near, far, suppress(OSError):
                    self._forward({near: far, far: near}, far)

    def _forward(self, ways: dict[socket.socket, socket.socket], far: socket.socket) -> None:
        asked = False
        while True:
            for source in select.select(list(ways), [], [])[0]:
                if not (data := source.recv(1 << 20)):
                    return
                if source is far and asked:
                    self.turns += 1
                asked = source is not far
                sent = data if asked else self.forge(data)
                if sent is None:
                    return
                ways[source].sendall(sent)


PROMPT = list(range(5, 45))
# The kernels of a server: weights as they are in the file, and attention that stores scores.
SAME = {"threads": 1, "repack": False, "flash_attention": False}


def names(servers: list[RpcServer]) -> str:
    return ",".join(server.name for server in servers)


def texts(model: Any, tokens: int = 24) -> tuple[list[int], list[Any]]:
    """Decode greedily, one token and then trees, and return tokens and logits."""
    said, rows = [], []
    session = model.open(128)
    try:
        session.prefill(PROMPT[:-1])
        last = PROMPT[-1]
        for _ in range(tokens):
            logits = session.forward(TokenTree.chain([last, 7, 8]), want=Want.LOGITS).logits
            assert logits is not None
            rows.append(np.array(logits))
            session.commit([0])
            last = int(rows[-1][0].argmax())
            said.append(last)
    finally:
        session.close()
    return said, rows
