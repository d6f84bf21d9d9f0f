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
from edgedec.serve.errors import UNAVAILABLE, ApiError, busy, ending, stopped
from edgedec.serve.settings import Settings
from edgedec.serve.ticket import News, Ticket, late

_log = logging.getLogger("edgedec")
# Prior of a request's seconds of turns, and the weight of the latest one.
_GUESS_S, _SHARE = 2.0, 0.2
_LONGEST_WAIT_S = 60
# Until a text may be sent again that memory does not hold, though it held the whole context once.
_SHORT_S = 5
Finished = Callable[[Ticket, Generation], None]


class Turns:
    """Owner of a pipeline, which is used in its thread alone.

    Args:
        pipeline: opened with ``parallel``.
        settings: say how many requests are decoded by turns, and how many may wait.
        finished: called in the thread with each finished text.
        settled: waits for memory that is about to be given back; returns whether any was.
        rested: called in the thread when the last request has ended.

    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        finished: Finished = lambda ticket, result: None,
        settled: Callable[[], bool] = lambda: False,
        rested: Callable[[], None] = lambda: None,
    ) -> None:
        self._pipeline, self._settings = pipeline, settings
        self._finished, self._settled, self._rested = finished, settled, rested
        self._wake = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []
        # True while a text waits for others to end, since memory does not hold all of them, and
        # until it has begun.
        self._full = self._ending = self._closing = False
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

    @property
    def idle(self) -> bool:
        """True while no request takes turns or waits."""
        with self._wake:  # a request on its way from one to the other counts
            return not (self._running or self._waiting)

    def submit(self, ticket: Ticket) -> None:
        """Have a request decoded that was checked when it came.

        Raises:
            ApiError: too many are waiting, or the server is shutting down.

        """
        with self._wake:
            self.check()
            self._waiting.append(ticket)
            self._wake.notify()

    def check(self) -> None:
        """Refuse a request that could not be submitted now; called from any thread.

        Raises:
            ApiError: too many are waiting, or the server is shutting down.

        """
        if self._ending:
            raise ending()
        ahead = len(self._waiting) + len(self._running)
        if ahead >= self._settings.parallel + self._settings.queue:
            retry_s = max(1, min(_LONGEST_WAIT_S, round(self._usual_s * ahead)))
            raise busy(f"{len(self._waiting)} requests are waiting: try again later", retry_s)

    def check_alive(self) -> None:
        """Check that texts can still be decoded.

        Raises:
            ApiError: the decoding thread has ended.

        """
        if not self._thread.is_alive():
            raise stopped()

    def end(self, *, at_once: bool = False) -> None:
        """Turn away requests that wait and that come; end the running ones only if ``at_once``."""
        with self._wake:
            self._ending, self._closing = True, self._closing or at_once
            ended = [*self._waiting, *(self._running if at_once else ())]
            self._waiting.clear()
            self._wake.notify()
        for ticket in ended:
            ticket.fail(ending())

    def close(self) -> None:
        """End all texts, and the thread."""
        self.end(at_once=True)
        self._thread.join()

    def _work(self) -> None:
        while self._admit():
            ticket = order.due(self._running, self._unread)
            began, read = perf_counter(), bool(ticket.to_read)
            goes_on = self._turn(ticket)
            took_s = perf_counter() - began
            ticket.spent_s += took_s
            order.charge(self._running, ticket, took_s, read=read)
            if not goes_on:
                self._leave(ticket)
        for ticket in self._running:
            _close(ticket)
            ticket.fail(ending())
        self._running.clear()

    def _admit(self) -> bool:
        """Wait for work, and let requests in while there are places; False at the end."""
        with self._wake:
            while not (self._closing or self._running or self._waiting):
                self._wake.wait()
            while self._waiting and len(self._running) < self._settings.parallel and not self._full:
                ticket = self._waiting.popleft()
                ticket.used_s = None
                self._running.append(ticket)
                # Those after it stay, or short ones would take the memory that it waits for.
                self._full = ticket.put_back
            return not self._closing

    def _leave(self, ticket: Ticket) -> None:
        with self._wake:
            self._running.remove(ticket)
            self._full = any(one.put_back for one in self._running)
        if self.idle:
            self._rested()

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
            if self._settings.private:
                self._pipeline.forget()
            stream = ticket.stream = self._pipeline.stream(work.prompt, options)
        events = stream.turn()
        if ticket.put_back:
            ticket.put_back = self._full = False
        if begins:  # a session may hold less of the prompt than was thought
            prompt = ticket.works[ticket.choice].prompt
            ticket.to_read = ticket.length = len(prompt) - 1 - stream.metrics.reused_tokens
        self._note_read(ticket, stream.metrics.prefill_tokens_left)
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
        private = self._settings.private
        shared = 0 if private else self._pipeline.engine.pool.shared_prefix(prompt)
        return max(0, len(prompt) - 1 - shared)

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
        self._usual_s += _SHARE * (ticket.spent_s - self._usual_s)
        ticket.end()
        return False

    def _too_large(self, ticket: Ticket, error: MemoryBudgetError) -> bool:
        """Put a text back in the queue until another ends, since memory does not hold both."""
        began = ticket.stream is not None and bool(ticket.stream.metrics.emitted)
        _close(ticket)
        if not began and len(self._running) == 1 and (self._stand_back(ticket) or self._settled()):
            return True  # once more
        if began or len(self._running) == 1:
            ticket.fail(_short_of_memory(error))
            return False
        with self._wake:
            self._running.remove(ticket)
            if not self._ending:
                self._waiting.appendleft(ticket)
                self._full = ticket.put_back = True
                return True
        ticket.fail(ending())
        return True

    def _stand_back(self, ticket: Ticket) -> bool:
        """Let the next request that waits go before the only one that runs, once."""
        with self._wake:
            if ticket.stood_back or self._ending or not self._waiting:
                return False
            ticket.stood_back = True
            self._running.remove(ticket)
            self._waiting.insert(1, ticket)
            self._full = False
            return True


def _short_of_memory(error: MemoryBudgetError) -> ApiError:
    """Return the error of a text that does not fit alone: what the context was chosen for did."""
    return ApiError(
        503, str(error), kind=UNAVAILABLE, code="insufficient_memory", retry_s=_SHORT_S
    )  # fmt: skip


def _close(ticket: Ticket) -> None:
    if ticket.stream is not None:
        ticket.stream.close()
        ticket.stream = ticket.to_read = None
