"""Runs in the child process of ``sandbox``: limits itself, then runs tasks in turn.

Imports next to nothing, so that a child starts quickly.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NoReturn

from edgedec.errors import EdgedecError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


_answers: BinaryIO | None = None


class Refusal(Exception):
    """The task is refused; the parent raises ``sandbox.Refused``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Exhausted(Exception):
    """The task meets a bound; the parent raises ``sandbox.Stopped``."""


def serve(handle: Callable[[Mapping[str, Any]], Any]) -> NoReturn:
    """Do tasks until the input ends, as it does when the parent ends; does not return.

    Args:
        handle: does one task and returns its answer as JSON; may raise the errors above. An
            ``EdgedecError`` is a refusal of that name; with any other exception the process
            ends, and the parent shows the last line that it wrote to its standard error.

    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The answers get a copy of the standard output; what libraries print goes where errors go.
    global _answers
    answers = _answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        most = resource.getrlimit(resource.RLIMIT_AS)
    _send(answers, {"ready": True})
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        limits = request["limits"]
        if resource is not None:
            _bound(limits, most)
        try:
            answer = _answer(handle, request["task"], limits["memory_bytes"])
        except BaseException as error:
            if not isinstance(error, SystemExit):
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # a clean end would wait for the thread that reads
        _send(answers, answer)
        if resource is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)


def report(what: Any) -> None:
    """Tell the parent, as JSON, how far a task is; does nothing outside of such a child."""
    if _answers is not None:
        _send(_answers, {"report": what})


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    """Read requests; without a parent, exit and drop the current one."""
    while line := sys.stdin.buffer.readline():
        requests.put(line)
        del line
    os._exit(0)


def _answer(
    handle: Callable[[Mapping[str, Any]], Any], task: Mapping[str, Any], memory_bytes: int | None
) -> dict[str, Any]:
    try:
        return {"done": handle(task)}
    except MemoryError:
        if memory_bytes is None:
            return {"exhausted": "it needs more memory than there is"}
        return {"exhausted": f"it needs more than {memory_bytes >> 20} MiB of memory"}
    except Exhausted as error:
        return {"exhausted": str(error)}
    except Refusal as error:
        return {"refused": error.kind, "why": str(error)}
    except EdgedecError as error:
        return {"refused": type(error).__name__, "why": str(error)}


def _send(answers: BinaryIO, answer: Mapping[str, Any]) -> None:
    try:
        line = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except MemoryError:
        line = b'{"exhausted": "its answer needs more memory than it may have"}'
    answers.write(line + b"\n")
    answers.flush()


def _bound(limits: Mapping[str, Any], most: tuple[int, int]) -> None:
    """Bounds on one task: address space, and processor time from now on."""
    if limits["memory_bytes"] is not None:
        soft, hard = (math.inf if value == resource.RLIM_INFINITY else value for value in most)
        wanted = int(min(limits["memory_bytes"], soft, hard))
        # macOS refuses less than is in use, and does not obey it.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (wanted, most[1]))
    if limits["cpu_s"] is None:
        return
    # The timer is exact and its signal ends the process; the limit counts whole seconds.
    signal.setitimer(signal.ITIMER_PROF, limits["cpu_s"])
    used = math.ceil(time.process_time() + limits["cpu_s"]) + 1
    hardest = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hardest == resource.RLIM_INFINITY or used < hardest:
        resource.setrlimit(resource.RLIMIT_CPU, (used, hardest))
