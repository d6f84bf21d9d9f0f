"""Calls of llama.cpp that may never return, because a server on another machine has vanished.

llama.cpp's RPC client ends the process when a connection breaks: a thread of its own, one for each
server, calls ``ggml_abort``. Before that, ggml calls an abort callback. Here the callback does not
return, so that this thread sleeps for good instead of ending the process. The thread that waits for
its answer inside llama.cpp then waits for good as well. So all calls for such a model run on a
worker thread, which is left behind; the caller gets an error, and the model is never used again.
What it holds in this process stays allocated: local layers, which are mapped from the file, and
buffers. A later connection to the same server starts afresh (``spelling``).
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from edgedec._support.environment import variable
from edgedec.errors import PassFailed
from edgedec.runtimes.llamacpp import library
from edgedec.runtimes.llamacpp.connections import connections, is_alive, keep_asking
from edgedec.runtimes.llamacpp.endpoints import Endpoint

# How long Ctrl-C waits for the end of a pass, after which its servers are given up.
_PATIENCE_S = 10.0
# How long an answer is waited for: to a connection, of a pass, which has a chunk of the prompt at
# most, and of what loads a model. A server that hangs, or pretends to compute, is then given up.
_CONNECTING_S, _PASS_S, _LOADING_S = 60.0, 600.0, 3600.0
# And how long once a server has vanished that may be this call's or that of a model freed before.
_DOUBT_S = 10.0
# How long the end of this process waits for what is freed at a server.
_FREEING_S = 2.0
# How long an address is tried before it is asked in a child process, which takes longer.
_GLANCE_S = 3.0
_WORKER = "edgedec-rpc"
_NO_REUSE = "LLAMA_GRAPH_REUSE_DISABLE"  # read by llama.cpp when it makes a context
_CLIENT = b"ggml-rpc"  # the source file, with which its messages begin
_ABORT = ctypes.CFUNCTYPE(None, ctypes.c_char_p)

_links: weakref.WeakSet[Link] = weakref.WeakSet()
_lock = threading.Lock()
_losses: Counter[tuple[str, int]] = Counter()
_left_behind: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Link:
    """Runs llama.cpp's calls for one model whose layers are on other machines.

    Called as ``link(function, *arguments)``; one call at a time, each on the worker thread.

    Args:
        servers: that the model is spread over.

    Attributes:
        lost: why it cannot be used any more; None while it can.
        loaded: whether the model is, so that it has a connection to each server.

    Raises:
        PassFailed: by a call, once a server has vanished.

    """

    def __init__(self, servers: Sequence[Endpoint]) -> None:
        self.servers = tuple(servers)
        self.lost: str | None = None
        self.loaded = False
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._answers: _Answers = queue.SimpleQueue()
        self._turn = threading.Lock()
        _catch_aborts()
        with _lock:
            _links.add(self)
        arguments = (self._tasks,)
        self._worker = threading.Thread(target=_work, args=arguments, name=_WORKER, daemon=True)
        self._worker.start()
        weakref.finalize(self, self._tasks.put, None)

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a call of llama.cpp returns."""
        return self._answered(_PASS_S if self.loaded else _LOADING_S, function, arguments)

    def soon(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a call returns that takes no longer than a connection."""
        return self._answered(_CONNECTING_S, function, arguments)

    def _answered(
        self, limit_s: float, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        with self._turn:
            answers: _Answers = queue.SimpleQueue()
            self._answers = answers
            if self.lost is not None:
                raise PassFailed(self.lost)
            self._tasks.put((function, arguments, answers))
            try:
                answer = answers.get(timeout=limit_s)
                while isinstance(answer, _Doubt):
                    answer = self._soon(answers)
            except queue.Empty:
                self.lose(self.servers, "has brought no answer for too long")
                answer = None
            except BaseException:  # Ctrl-C: the pass goes on, and nothing may run beside it
                self._finish(answers)
                raise
        if answer is None:
            raise PassFailed(self.lost)
        result, error, errors, warnings = answer
        library.told(errors, warnings)
        if error is not None:
            raise error
        return result

    def _soon(self, answers: _Answers) -> _Answer | _Doubt | None:
        with suppress(queue.Empty):
            return answers.get(timeout=_DOUBT_S)
        self.lose(self.gone() or self.servers)
        return None

    @property
    def waiting(self) -> bool:
        """Whether a call waits for its answer."""
        return self._turn.locked()

    def doubt(self) -> None:
        """Wait no longer than a moment for the answer of a call: its server may have vanished."""
        self._answers.put(_Doubt())

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have a call run later, unless a server has vanished by then; for what frees memory."""
        if self.lost is None:
            self._tasks.put((function, arguments, None))

    def watch(self) -> None:
        """Notice a network that is cut without a word; once a model is loaded."""
        self.loaded = True
        for _, connection in self._connections():
            keep_asking(connection)

    def whole_graphs(self) -> AbstractContextManager[None]:
        """Return a context in which contexts are made that send the graph of every pass.

        Where a graph is that of the pass before, llama.cpp only asks the server to compute its last
        one again, which is another context's if two share the server.
        """
        return variable(_NO_REUSE, "1")

    def gone(self) -> list[Endpoint]:
        """Return the servers to which no connection is left."""
        alive = {there for there, connection in self._connections() if is_alive(connection)}
        return [one for one in self.servers if (one.address, one.port) not in alive]

    def lose(self, gone: Sequence[Endpoint], why: str = "was lost in a pass") -> None:
        """Give the model up, and end its connections, so that servers take another client."""
        if self.lost is None:
            self.lost = (
                f"the connection to llama.cpp's server {', '.join(one.name for one in gone)} {why}:"
                " start the server again, then ask again"
            )
            _losses.update((one.address, one.port) for one in self.servers)
            if self.waiting:
                _left_behind.add(self._worker)
            for _, connection in self._connections():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._answers.put(None)

    def _connections(self) -> Iterator[tuple[tuple[str, int], socket.socket]]:
        wanted = {(one.address, one.port) for one in self.servers}
        return ((there, each) for there, each in connections() if there in wanted)

    def _finish(self, answers: _Answers) -> None:
        try:
            while isinstance(answers.get(timeout=_PATIENCE_S), _Doubt):
                pass
        except queue.Empty:
            self.lose(self.servers)


def link_to(server: Endpoint) -> Link | None:
    """Return the calls of an open model that uses a server; None without one."""
    there = (server.address, server.port)
    for link in _alive():
        if there in [(one.address, one.port) for one in link.servers]:
            return link
    return None


def spelling(server: Endpoint) -> str:
    """Return an address as llama.cpp is given it, ``HOST:PORT``.

    llama.cpp keeps a connection by the text of its address for as long as a model uses it, and a
    lost model is never freed. Leading zeros of the port make another text of the same address.
    """
    return f"{server.address}:{'0' * _losses[server.address, server.port]}{server.port}"


def answers_now(server: Endpoint) -> bool:
    """Return whether something accepts connections at an address."""
    try:
        with socket.create_connection((server.address, server.port), _GLANCE_S):
            return True
    except OSError:
        return False


class _Doubt:
    """Told to a call that waits: its server may have vanished."""


_Answer = tuple[Any, "Exception | None", list[str], list[str]]
_Answers = queue.SimpleQueue["_Answer | _Doubt | None"]
_Task = tuple[Callable[..., Any], tuple[Any, ...], "_Answers | None"]


def _work(tasks: queue.SimpleQueue[_Task | None]) -> None:
    """Run tasks in turn; llama.cpp's log is kept by thread, so it goes with the answer."""
    while (task := tasks.get()) is not None:
        function, arguments, answers = task
        library.forget()
        result, failed = None, None
        try:
            result = function(*arguments)
        except Exception as error:
            failed = error
        if answers is not None:
            answers.put((result, failed, *library.lines()))
        del task, function, arguments, answers, result, failed


@_ABORT  # type: ignore[untyped-decorator]
def _on_abort(message: bytes) -> None:
    """Called by ggml on the thread that is about to end the process."""
    if _CLIENT not in message.split(b": ", 1)[0]:
        os.write(2, message + b"\n")  # as without a callback
        return
    if hasattr(signal, "pthread_sigmask"):  # a signal would wake this thread
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    gone = _gone()
    for link, servers in gone.items():
        link.lose(servers)
    if not gone:
        for link in _alive():
            if link.waiting:
                link.doubt()
    while True:
        _sleep_for_good()


def _gone() -> dict[Link, Sequence[Endpoint]]:
    """Return the models whose servers are gone: the message does not say whose connection it was.

    A model that is lost already, or was freed while its server ended, has other connections, each
    of which may end in a message of its own later, beside models that are well. One that is being
    loaded has no connection at times, and one whose server answers rubbish has them all: while
    calls wait for an answer, that may be any of theirs, and time tells.
    """
    alive = _alive()
    gone = {link: link.gone() for link in alive if link.loaded}
    if any(gone.values()):
        return {link: servers for link, servers in gone.items() if servers}
    others = sum(one.name == _WORKER for one in threading.enumerate()) - len(alive)
    if others or any(link.waiting for link in alive):
        return {}
    return {link: link.gone() or link.servers for link in alive}


def _alive() -> list[Link]:
    with _lock:
        return [link for link in _links if link.lost is None]


def _sleep_for_good() -> None:
    """Sleep without Python's lock: a thread that wanted it back at exit would end the process."""
    if sys.platform == "win32":
        ctypes.windll.kernel32.Sleep(0xFFFFFFFF)
    else:
        ctypes.CDLL(None).pause()


_caught = False


def _catch_aborts() -> None:
    global _caught
    if not _caught:
        from edgedec.runtimes.llamacpp.backends import ggml

        ggml().ggml_set_abort_callback(_on_abort)
        _caught = True
        weakref.finalize(Link, _let_workers_end)


def _let_workers_end() -> None:
    """Wait at exit for what is freed: llama.cpp logs it, which is Python's until it is gone.

    Finalizers run from the newest to the oldest, so models and links have had theirs.
    """
    until = time.monotonic() + _FREEING_S
    for worker in threading.enumerate():
        if worker.name == _WORKER and worker not in _left_behind:
            worker.join(max(0.0, until - time.monotonic()))
