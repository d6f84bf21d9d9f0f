"""The decoding thread: texts of several requests take turns, a round or a part of a prompt each."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter

from edgedec.errors import EdgedecError, MemoryBudgetError
from edgedec.generation.result import Generation
from edgedec.pipeline import Pipeline
from edgedec.serve import order
from edgedec.serve.errors import UNAVAILABLE, ApiError
from edgedec.serve.ticket import News, Ticket, late

_log = logging.getLogger("edgedec")
# Prior of a request's seconds, and the weight of the latest one.
_GUESS_S, _SHARE = 2.0, 0.2
_LONGEST_WAIT_S = 60
Finished = Callable[[Ticket, Generation], None]


class Turns:
    """Owner of a pipeline, which is used in its thread alone.

    Args:
        pipeline: opened with ``parallel``.
        parallel: requests that are decoded by turns.
        queue: requests that may wait for a place among them.
        finished: called in the thread with each finished text.

    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        parallel: int,
        queue: int,
        finished: Finished = lambda ticket, result: None,
    ) -> None:
        self._pipeline, self._parallel, self._queue = pipeline, parallel, queue
        self._finished = finished
        self._wake = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        # True while a text waits for another to end, since memory does not hold both.
        self._full = self._closing = False
        self._usual_s = _GUESS_S
        self._thread = threading.Thread(target=self._work, name="edgedec-turns", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Number of requests that take turns."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a place."""
        return len(self._waiting)

    def submit(self, ticket: Ticket) -> None:
        """Have a request decoded.

        Raises:
            ApiError: too many are waiting, or the server is shutting down.

        """
        with self._wake:
            if self._closing:
                raise _ending()
            if len(self._waiting) + len(self._running) >= self._parallel + self._queue:
                raise ApiError(
                    429,
                    f"{len(self._waiting)} requests are waiting: try again later",
                    kind="rate_limit_error",
                    code="queue_full",
                    retry_s=self._retry_s(),
                )
            self._waiting.append(ticket)
            self._wake.notify()

    def close(self) -> None:
        """End all texts, and the thread."""
        with self._wake:
            self._closing = True
            left = [*self._waiting, *self._running]
            self._wake.notify()
        for ticket in left:
            ticket.cancel()
        self._thread.join()

    def _retry_s(self) -> int:
        ahead = len(self._waiting) + len(self._running)
        return max(1, min(_LONGEST_WAIT_S, round(self._usual_s * ahead / self._parallel)))

    def _work(self) -> None:
        while self._admit():
            ticket = order.due(self._running, self._unread)
            began, read = perf_counter(), bool(ticket.to_read)
            goes_on = self._turn(ticket)
            order.charge(self._running, ticket, perf_counter() - began, read=read)
            if not goes_on:
                self._leave(ticket)
        for ticket in [*self._waiting, *self._running]:
            _close(ticket)
            ticket.fail(_ending())
        self._waiting.clear()
        self._running.clear()

    def _admit(self) -> bool:
        """Wait for work, and let requests in while there are places; False at the end."""
        with self._wake:
            while not (self._closing or self._running or self._waiting):
                self._wake.wait()
            while self._waiting and len(self._running) < self._parallel and not self._full:
                ticket = self._waiting.popleft()
                ticket.used_s = None
                self._running.append(ticket)
            return not self._closing

    def _leave(self, ticket: Ticket) -> None:
        with self._wake:
            self._running.remove(ticket)
            self._full = False

    def _turn(self, ticket: Ticket) -> bool:
        """Run a round of a request; return whether it goes on."""
        try:
            if ticket.cancelled:
                _close(ticket)
                ticket.end()
                return False
            return self._round(ticket)
        except MemoryBudgetError as error:
            return self._too_large(ticket, error)
        except Exception as error:
            if not isinstance(error, (EdgedecError, ApiError)):
                _log.exception("a request failed")
            _close(ticket)
            ticket.fail(error)
            return False

    def _round(self, ticket: Ticket) -> bool:
        stream, begins = ticket.stream, ticket.stream is None
        if stream is None:
            left_s = ticket.deadline - perf_counter()
            if left_s <= 0:
                raise late()
            work = ticket.works[ticket.choice]
            options = dataclasses.replace(work.options, timeout_s=left_s)
            stream = ticket.stream = self._pipeline.stream(work.prompt, options)
        events = stream.turn()
        if begins:  # a session may hold less of the prompt than was thought
            prompt = ticket.works[ticket.choice].prompt
            ticket.to_read = ticket.length = len(prompt) - 1 - stream.metrics.reused_tokens
        self._note_read(ticket, stream.metrics.unread_tokens)
        if events is None:
            return self._end_of_text(ticket, stream.result)
        if events:
            ticket.last_at = perf_counter()
            put = ticket.put if ticket.first_at else ticket.put_first
            ticket.first_at = ticket.first_at or ticket.last_at
            put(News(ticket.choice, events))
        return True

    def _unread(self, ticket: Ticket) -> int:
        prompt = ticket.works[ticket.choice].prompt
        return max(0, len(prompt) - 1 - self._pipeline.engine.pool.shared_prefix(prompt))

    def _note_read(self, ticket: Ticket, left: int) -> None:
        read, ticket.to_read = (ticket.to_read or 0) - left, left
        if read:
            order.age([one for one in self._running if one is not ticket], read)

    def _end_of_text(self, ticket: Ticket, result: Generation | None) -> bool:
        assert result is not None
        self._finished(ticket, result)
        ticket.put(News(ticket.choice, result=result))
        ticket.stream, ticket.first_at, ticket.to_read = None, None, None
        ticket.overtaken = 0
        ticket.choice += 1
        if ticket.choice < len(ticket.works) and not ticket.cancelled:
            return True
        self._usual_s += _SHARE * (perf_counter() - ticket.began - self._usual_s)
        ticket.end()
        return False

    def _too_large(self, ticket: Ticket, error: MemoryBudgetError) -> bool:
        """Put a text back in the queue until another ends, since memory does not hold both."""
        began = ticket.stream is not None and bool(ticket.stream.metrics.emitted)
        _close(ticket)
        if began or len(self._running) == 1:
            ticket.fail(error)
            return False
        with self._wake:
            self._running.remove(ticket)
            self._waiting.appendleft(ticket)
            self._full = True
        return True


def _close(ticket: Ticket) -> None:
    if ticket.stream is not None:
        ticket.stream.close()
        ticket.stream = ticket.to_read = None


def _ending() -> ApiError:
    return ApiError(
        503, "the server is shutting down: try again later", kind=UNAVAILABLE, retry_s=5
    )
