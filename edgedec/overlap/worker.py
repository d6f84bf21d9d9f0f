"""A thread that obeys commands in order, and does background work between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from edgedec.errors import Interrupted
from edgedec.hardware.pinning import pinned
from edgedec.overlap.clock import Clock

Job = Callable[[], object]


class Worker:
    """One thread, kept on its cores: jobs in the order they were posted, the rest of the time
    ``idle``.

    A draft has no result that somebody waits for: it goes on until it is told what came of it.
    So jobs are messages and return nothing, and what they raise is carried to ``failed``, in the
    worker's thread, which goes on.

    Args:
        clock: whose thread it is and whose signals it waits for.
        name: of the thread.
        idle: called again and again while it returns True; False is to wait for a job.
        failed: gets what a job or ``idle`` raised. ``Interrupted`` is not a failure: whoever
            interrupts a pass has posted why.
        cores: to keep the thread on; None is any.

    Raises:
        RuntimeUnavailable: these cores cannot be had.

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
            pass  # here, where somebody hears it, rather than in the thread
        self._idle, self._failed = idle, failed
        # Appended to by one thread and taken from by another, which deques are made for.
        self._jobs: deque[Job] = deque()
        self._wake = clock.signal()
        self._closing = False
        self._task = clock.start(self._run, name=name, cores=cores)

    def post(self, job: Job) -> None:
        """Do this next, after what was posted before."""
        self._jobs.append(job)
        self._wake.set()

    def wake(self) -> None:
        """There may be something to do again."""
        self._wake.set()

    def close(self, interrupt: Callable[[], object]) -> None:
        """End the thread and wait for its end; ``interrupt`` stops a pass it may be in."""
        if not self._closing:
            self._closing = True
            interrupt()
            self._wake.set()
        self._task.join()

    def _run(self) -> None:
        while True:
            # Cleared before anything is looked at, so that neither a job nor close() is slept over.
            self._wake.clear()
            if self._closing:
                return
            try:
                while self._jobs:
                    self._jobs.popleft()()
                if not self._idle():
                    self._wake.wait()
            except Interrupted:
                self._wake.wait(0)  # a clock that has ended raises here, and ends the thread
            except BaseException as error:  # whatever it is must not end the thread
                self._failed(error)
