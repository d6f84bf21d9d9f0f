"""Work on data from elsewhere in a child process with bounds on memory, time and answer.

The child is a module whose ``main`` calls ``_confined_child.serve``. It starts at the first task,
stays for the next ones and ends with this process. A task that meets a bound takes
the child with it; the next task gets a new one.

Where the system has ``resource`` (Linux, macOS) the child bounds its own processor time, and its
memory as far as the system obeys RLIMIT_AS: Linux does, macOS does not. Windows has neither:
what holds there is the bound on elapsed time, which this process keeps, and on the answer.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgedec._support import isolated
from edgedec._support.fields import one_line

# Enough for a cold start from an SD card; no data from elsewhere is read meanwhile.
START_S = 60.0
_BLOCK_BYTES = 1 << 16
_TOO_LATE = {getattr(signal, name, None) for name in ("SIGPROF", "SIGXCPU")} - {None}
_QUIET_AND_SMALL = {
    "MALLOC_ARENA_MAX": "1",
    "RUST_BACKTRACE": "0",
    "TOKENIZERS_PARALLELISM": "false",  # a pool of threads reserves address space
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task.

    Attributes:
        memory_bytes: address space of the child, Python and libraries included.
        cpu_s: processor time of the task, in seconds.
        wall_s: elapsed time of the task, in seconds.
        answer_bytes: length of the child's answer.

    """

    memory_bytes: int
    cpu_s: float
    wall_s: float
    answer_bytes: int


class Stopped(Exception):
    """A bound was met or the child crashed; the message says which, in one line."""


class Refused(Exception):
    """The child's own refusal.

    Attributes:
        kind: which one, as the child's module names it.

    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Confined:
    """A child process that does one task after the other.

    Args:
        module: what runs in the child.
        idle_s: seconds without a task after which it ends.

    """

    def __init__(self, module: str, *, idle_s: float) -> None:
        self._module = module
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._child: _Child | None = None
        _ALL.add(self)

    def ask(self, task: Mapping[str, Any], limits: Limits) -> Any:
        """Have a task done.

        Args:
            task: what the child's module expects, as JSON.
            limits: bounds on this task.

        Returns:
            The child's answer, as JSON.

        Raises:
            Stopped: a bound was met, or the child crashed.
            Refused: the child's module refused the task.

        """
        request = json.dumps({"task": task, "limits": asdict(limits)}).encode() + b"\n"
        with self._lock:
            try:
                answer = self._started().ask(request, limits, self._idle_s)
                if "exhausted" in answer:
                    raise Stopped(_line(answer["exhausted"]))
            except BaseException:  # also Ctrl-C: the child must not go on
                self._drop()
                raise
        if "refused" in answer:
            raise Refused(str(answer["refused"]), _line(answer.get("why")))
        return answer.get("done")

    def close(self) -> None:
        """End the child; the next task starts another."""
        with self._lock:
            self._drop()

    def forget(self) -> None:
        """Begin anew in a process forked from the one whose child this is.

        A thread that is not there any more may have held the lock.
        """
        self._lock = threading.Lock()
        self._drop()

    def _started(self) -> _Child:
        child = self._child
        if child is None or not child.mine or not child.alive:
            self._drop()
            try:
                child = self._child = _Child(self._module)
            except OSError as error:  # no memory or no processes left
                raise Stopped(f"no process for it can be started: {error.strerror}") from None
            atexit.register(child.end)
            child.wait_ready()
        return child

    def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            atexit.unregister(child.end)
            child.end()


_ALL: weakref.WeakSet[Confined] = weakref.WeakSet()


def _forget_all() -> None:
    # An end of a child's pipe that stays open in a fork would keep that child alive.
    for confined in list(_ALL):
        confined.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _Child:
    """One process, and the thread that ends it when it is late."""

    def __init__(self, module: str) -> None:
        self._said = isolated.scratch()
        try:
            self._process = subprocess.Popen(
                isolated.python(module), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._said, env={**os.environ, **_QUIET_AND_SMALL},
                start_new_session=True,  # Ctrl-C in a terminal is for this process alone
                bufsize=0,  # a buffer's lock may be held by a thread when this process forks
            )  # fmt: skip
        except BaseException:
            self._said.close()
            raise
        self._owner = os.getpid()
        self._late = False
        self._deadline = time.monotonic() + START_S
        self._changed = threading.Condition()
        try:
            threading.Thread(target=self._watch, name="edgedec-confined", daemon=True).start()
        except RuntimeError:  # no more threads for this user
            self.end()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    @property
    def mine(self) -> bool:
        """Whether this process started it, rather than the one this was forked from."""
        return self._owner == os.getpid()

    @property
    def alive(self) -> bool:
        """Whether it takes a task; from here on it has time to do so."""
        with self._changed:
            self._deadline = time.monotonic() + START_S
            return not self._late and self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until its modules are imported."""
        if self._read(64) is None:
            raise Stopped(self._end_reason(START_S, START_S))

    def ask(self, request: bytes, limits: Limits, idle_s: float) -> dict[str, Any]:
        """Send a request, and read the answer."""
        self._due(limits.wall_s)
        stdin = self._process.stdin
        if stdin is None:
            raise RuntimeError("the child has no input")
        with contextlib.suppress(OSError):  # it ended: reading says why
            left = memoryview(request)
            while left:
                left = left[stdin.write(left) :]
        answer = self._read(limits.answer_bytes)
        if answer is None:
            raise Stopped(self._end_reason(limits.cpu_s, limits.wall_s))
        self._due(idle_s)
        return answer

    def end(self) -> None:
        """Kill it, if this process started it."""
        if self.mine:
            self._process.kill()
            self._process.wait()
            with self._changed:
                self._changed.notify()
        else:
            self._process.poll()  # it is another's: nothing is waited for
        for stream in (self._process.stdin, self._process.stdout, self._said):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read(self, limit: int) -> dict[str, Any] | None:
        """One line of JSON; None where it ended before."""
        line = self._received(limit)
        if line and not line.endswith(b"\n"):
            raise Stopped(f"its answer is longer than {limit >> 20} MiB")
        try:
            answer = json.loads(line.decode("utf-8", "surrogatepass")) if line else None
        except (ValueError, RecursionError):
            answer = None
        return answer if isinstance(answer, dict) else None

    def _received(self, limit: int) -> bytearray:
        """Bytes up to the end of a line, of the input, or to the limit."""
        stdout, line = self._process.stdout, bytearray()
        while stdout is not None and len(line) < limit and not line.endswith(b"\n"):
            block = stdout.read(min(limit - len(line), _BLOCK_BYTES))
            if not block:
                break
            line += block
        return line

    def _due(self, seconds: float) -> None:
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify()

    def _watch(self) -> None:
        with self._changed:
            while self._process.poll() is None:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    self._late = True
                    self._process.kill()
                    self._process.wait()
                    return
                self._changed.wait(left)

    def _end_reason(self, cpu_s: float, wall_s: float) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        if self._late:
            return f"it took longer than {wall_s:g} s"
        if code is not None and -code in _TOO_LATE:
            return f"it took more than {cpu_s:g} s of processor time"
        self._said.seek(0)
        said = isolated.last_line(self._said.read(isolated.MAX_OUTPUT_BYTES))
        if code is not None and code < 0:
            return f"it crashed with {isolated.signal_name(-code)}: {said}"
        return said


def _line(message: Any) -> str:
    return one_line(" ".join(str(message).split()))
