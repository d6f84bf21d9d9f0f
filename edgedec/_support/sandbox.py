"""Work in a child process with bounds on memory, time and answer: what may crash, hang or grow.

Data from elsewhere is looked at there, drivers are measured and libraries that abort are called.
The child is a module whose ``main`` calls ``_sandbox_child.serve``. It starts at the first task,
stays for the next ones and ends with this process. A task that meets a bound takes
the child with it; the next task gets a new one.

Where the system has ``resource`` (Linux, macOS) the child bounds its own processor time, and its
memory as far as the system obeys RLIMIT_AS: Linux does, macOS does not. Windows has neither:
what holds there is the bound on elapsed time, which this process keeps, and on the answer.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

from edgedec._support.child import Child, Limits, Stopped, last_line
from edgedec._support.fields import one_line

__all__ = ["Limits", "Refused", "Sandbox", "Stopped", "ask_once"]

_QUIET_AND_SMALL = {
    "MALLOC_ARENA_MAX": "1",
    "RUST_BACKTRACE": "0",
    "TOKENIZERS_PARALLELISM": "false",  # a pool of threads reserves address space
}


class Refused(Exception):
    """The child's own refusal.

    Attributes:
        kind: which one, as the child's module names it.

    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Sandbox:
    """A child process that does one task after the other.

    Args:
        module: what runs in the child.
        idle_s: seconds without a task after which it ends.
        environment: variables that the child has in addition to those of this process.
        telling: picks, of what the child wrote to its standard error, the line that says why
            it ended.

    """

    def __init__(
        self,
        module: str,
        *,
        idle_s: float,
        environment: Mapping[str, str] = _QUIET_AND_SMALL,
        telling: Callable[[bytes], str] = last_line,
    ) -> None:
        self._start = partial(Child, module, environment, telling)
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._child: Child | None = None
        _ALL.add(self)

    def ask(
        self,
        task: Mapping[str, Any],
        limits: Limits,
        on_wait: Callable[[], None] | None = None,
        on_report: Callable[[Any], None] = lambda what: None,
    ) -> Any:
        """Have a task done.

        Args:
            task: what the child's module expects, as JSON.
            on_wait: called a few times a second meanwhile.
            on_report: called with what the child reports meanwhile, as JSON.

        Returns:
            The child's answer, as JSON.

        Raises:
            Stopped: a bound was met, or the child crashed.
            Refused: the child's module refused the task.

        """
        request = json.dumps({"task": task, "limits": asdict(limits)}).encode() + b"\n"
        with self._lock:
            try:
                answer = self._started().ask(request, limits, self._idle_s, on_wait, on_report)
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
        """Start again in a process forked from the one whose child this is.

        A thread that is not there any more may have held the lock.
        """
        self._lock = threading.Lock()
        self._drop()

    def _started(self) -> Child:
        child = self._child
        if child is None or not child.mine or not child.alive:
            self._drop()
            try:
                child = self._child = self._start()
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


def ask_once(
    module: str,
    task: Mapping[str, Any],
    limits: Limits,
    *,
    environment: Mapping[str, str],
    telling: Callable[[bytes], str] = last_line,
    on_wait: Callable[[], None] | None = None,
    on_report: Callable[[Any], None] = lambda what: None,
) -> Any:
    """Have one task done in a child of its own; see ``Sandbox``."""
    child = Sandbox(module, idle_s=limits.wall_s, environment=environment, telling=telling)
    with closing(child):
        return child.ask(task, limits, on_wait, on_report)


_ALL: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _forget_all() -> None:
    # An end of a child's pipe that stays open in a fork would keep that child alive.
    for sandbox in list(_ALL):
        sandbox.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _line(message: Any) -> str:
    return one_line(" ".join(str(message).split()))
