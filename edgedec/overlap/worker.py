"""A thread that runs jobs in order, and background work between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from edgedec.errors import Interrupted
from edgedec.hardware.pinning import pinned
from edgedec.overlap.clock import Clock

Job = Callable[[], object]


class Worker:
    """One thread that runs jobs in the order they were posted, and ``idle`` the rest of the time.

    Nobody waits for a draft's result: drafting goes on until the outcome arrives. So jobs are
    messages that return nothing, and exceptions go to ``failed`` in the worker's thread, which then
    goes on.

    Args:
        clock: provides the thread and its signals.
        name: of the thread.
        idle: called repeatedly while it returns True; after False the thread waits for a job.
        failed: called with any exception of a job or ``idle`` but ``Interrupted``: the job that
            interrupted the pass is already posted.
        cores: of the thread; None is any.

    Raises:
        RuntimeUnavailable: this process may not use these cores.

    """

    def __init__(
        self,
        clock: Clock,
        name: str,
        idle: Callable[[], bool],
        failed: Callable[[BaseException], object],
        cores: Sequence[int] | None = None,
    ) -> None:
        with pinned(cores):
            pass  # unusable cores raise here, where it can be handled, not in the thread
        self._idle, self._failed = idle, failed
        # One thread appends and another takes; deques are safe for that.
        self._jobs: deque[Job] = deque()
        self._wake = clock.signal()
        self._closing = False
        self._task = clock.start(self._run, name=name, cores=cores)

    def post(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.append(job)
        self._wake.set()

    def wake(self) -> None:
        """Call ``idle`` again, since it may have work."""
        self._wake.set()

    def close(self, interrupt: Callable[[], object]) -> None:
        """End the thread and wait for it; ``interrupt`` stops a pass it may be in."""
        if not self._closing:
            self._closing = True
            interrupt()
            self._wake.set()
        self._task.join()

    def _run(self) -> None:
        while True:
            # Cleared before jobs are checked, so that neither a job nor close() is missed.
            self._wake.clear()
            if self._closing:
                return
            try:
                while self._jobs:
                    self._jobs.popleft()()
                if not self._idle():
                    self._wake.wait()
            except Interrupted:
                self._wake.wait(0)  # a clock that has ended raises here, which ends the thread
            except BaseException as error:  # nothing may end the thread
                self._failed(error)
