"""Runs a child process: starts it, limits its time, reads its answer, ends it and explains its end.

It has the modules that this process has, whatever the current folder and the environment hold,
and talks in lines of JSON: see ``_sandbox_child`` for its side.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgedec._support.fields import json_object, one_line
from edgedec._support.files import last_bytes

# How the message begins if a child was ended for its time.
TOOK_LONGER = "it took longer"
# Enough for a cold start from an SD card; no data from elsewhere is read meanwhile.
START_S = 60.0
MAX_OUTPUT_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 16
_POLL_S = 0.2
_TOO_LATE = {getattr(signal, name, None) for name in ("SIGPROF", "SIGXCPU")} - {None}
_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "module = sys.argv.pop(1); runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task.

    Attributes:
        memory_bytes: address space of the child, Python and libraries included; None is any.
        cpu_s: processor time of the task, in seconds; None is any.
        wall_s: elapsed time of the task, in seconds.
        answer_bytes: length of the child's answer.

    """

    memory_bytes: int | None
    cpu_s: float | None
    wall_s: float
    answer_bytes: int = 1 << 20


class Stopped(Exception):
    """A bound was met or the child crashed; the message says which, in one line."""


class Child:
    """A process, and the thread that ends it when it is late.

    Args:
        module: what runs in it; its ``__main__`` calls ``_sandbox_child.serve``.
        environment: variables that it has in addition to those of this process.
        telling: picks, of what it wrote to its standard error, the line that says why it ended.

    Raises:
        OSError: no process or thread can be started.

    """

    def __init__(
        self, module: str, environment: Mapping[str, str], telling: Callable[[bytes], str]
    ) -> None:
        self._telling = telling
        self._stderr = _scratch()
        try:
            self._process = subprocess.Popen(
                _python(module), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._stderr, env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C in a terminal is for this process alone
                bufsize=0,  # a buffer's lock may be held by a thread when this process forks
            )  # fmt: skip
        except BaseException:
            self._stderr.close()
            raise
        self._owner = os.getpid()
        self._late = False
        self._rest = bytearray()
        self._deadline = time.monotonic() + START_S
        self._changed = threading.Condition()
        try:
            threading.Thread(target=self._watch, name="edgedec-child", daemon=True).start()
        except RuntimeError:  # no more threads for this user
            self.end()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    @property
    def mine(self) -> bool:
        """Return whether this process started it, rather than the one this was forked from."""
        return self._owner == os.getpid()

    @property
    def alive(self) -> bool:
        """True if it takes a task; its time to do so starts here."""
        with self._changed:
            self._deadline = time.monotonic() + START_S
            return not self._late and self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until its modules are imported."""
        if self._read(64) is None:
            raise Stopped(self._end_reason(START_S, START_S))

    def ask(
        self,
        request: bytes,
        limits: Limits,
        idle_s: float,
        on_wait: Callable[[], None] | None,
        on_report: Callable[[Any], None],
    ) -> dict[str, Any]:
        """Send a request, and read the answer; see ``Sandbox.ask`` for what is called meanwhile."""
        self._due(limits.wall_s)
        stdin = self._process.stdin
        if stdin is None:
            raise RuntimeError("the child has no input")
        with contextlib.suppress(OSError):  # it ended: reading says why
            left = memoryview(request)
            while left:
                left = left[stdin.write(left) :]
        while (answer := self._read(limits.answer_bytes, on_wait)) and "report" in answer:
            on_report(answer["report"])
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
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read(self, limit: int, on_wait: Callable[[], None] | None = None) -> dict[str, Any] | None:
        """Return one line of JSON; None if the process ended before."""
        line = bytearray()
        if on_wait is None:
            self._receive(line, limit)
        else:
            reader = threading.Thread(target=self._receive, args=(line, limit), daemon=True)
            reader.start()
            while reader.is_alive():
                reader.join(_POLL_S)
                on_wait()
        if line and not line.endswith(b"\n"):
            raise Stopped(f"its answer is longer than {limit >> 20} MiB")
        try:
            return json_object(line.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            return None

    def _receive(self, line: bytearray, limit: int) -> None:
        """Append bytes up to the end of a line, of the input, or to the limit."""
        stdout = self._process.stdout
        block, self._rest = self._rest, bytearray()
        while stdout is not None:
            end = block.find(b"\n") + 1
            if end:
                line += block[:end]
                self._rest = block[end:]
                return
            line += block
            if len(line) >= limit:
                return
            block = bytearray(stdout.read(min(limit - len(line), _BLOCK_BYTES)) or b"")
            if not block:
                return

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

    def _end_reason(self, cpu_s: float | None, wall_s: float) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.returncode
        if self._late:
            return f"{TOOK_LONGER} than {wall_s:g} s"
        if cpu_s is not None and code is not None and -code in _TOO_LATE:
            return f"it took more than {cpu_s:g} s of processor time"
        output = self._telling(last_bytes(self._stderr, MAX_OUTPUT_BYTES))
        if code is not None and code < 0:
            return f"it crashed with {signal_name(-code)}: {output}"
        return output


def _python(module: str) -> list[str]:
    """The command that runs a module, from where this process finds its modules.

    Isolated: neither the current folder nor the environment adds to them.
    """
    # A script inside the package would put it there, and `edgedec/gguf` in the place of `gguf`.
    package = Path(__file__).resolve().parents[1]
    paths = json.dumps([path for path in sys.path if path and Path(path).resolve() != package])
    return [sys.executable, "-I", "-c", _START, paths, module]


def _scratch() -> IO[bytes]:
    """A file for what a process complains; nowhere on a system without a folder for such files."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return Path(os.devnull).open("w+b")


def signal_name(code: int) -> str:
    """The signal that ended a process whose exit code is ``-code``, as ``SIGSEGV``."""
    try:
        return signal.Signals(code).name
    except ValueError:
        return f"signal {code}"


def last_line(output: bytes) -> str:
    """The last line a process wrote to its standard error, at most 300 characters."""
    text = output[-MAX_OUTPUT_BYTES:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line((lines or ["it gave no reason"])[-1])[:300]
