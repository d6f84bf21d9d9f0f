"""The stream of a generation's events; it has the result once the generation has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from edgedec._support.shown import Shown
from edgedec.decoding.emission import Emission
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.request import Request
from edgedec.generation.queue import Place
from edgedec.generation.result import Generation, Setup, scored

if TYPE_CHECKING:
    from edgedec.text.thinking import Splitter

Rounds = Callable[[Request, Metrics, Place], Iterator[list[Emission]]]


class Stream(Shown, Iterator[Emission]):
    """Events of one generation as they come; ``result`` is set when it has ended.

    Decoding starts when the first event is requested, and waits then for the texts that came
    before; from then on the stream keeps its place in the pipeline until it ends. ``close`` (or
    garbage collection) abandons the stream and leaves the pipeline usable. ``cancel`` and ``close``
    may be called from any thread. Text that may be the beginning of a stop string is held back; if
    a timeout or a cancellation ends the stream, it appears in ``result.text`` only. The thinking
    before an answer is in ``event.thinking`` and ``result.thinking``.
    """

    hidden_names = frozenset({"deadline", "prompt_tokens", "turn"})

    def __init__(
        self,
        rounds: Rounds,
        request: Request,
        plan: Callable[[], Setup],
        place: Place,
        splitter: Splitter | None = None,
        written: Callable[[int], str] = str,
    ) -> None:
        self.metrics = Metrics()
        self.result: Generation | None = None
        self._request = request
        self._plan, self._place, self._splitter = plan, place, splitter
        self._written = written
        self._events: list[Emission] = []
        self._rounds = rounds(request, self.metrics, place)
        self._ready: Iterator[Emission] = iter(())
        self._abandoned = False
        # Held by the thread that runs a round; reentrant, since a signal handler may call close().
        self._lock = threading.RLock()
        self._running = False

    def __next__(self) -> Emission:
        while True:
            with self._lock:
                for event in self._ready:
                    self._events.append(event)
                    return event
                self._ready = iter(self._run_round())

    @property
    def deadline(self) -> float | None:
        """The time of ``perf_counter`` at which the text ends with ``timeout``, or None."""
        return self._request.deadline

    @property
    def prompt_tokens(self) -> int:
        """The number of tokens of the prompt."""
        return len(self._request.prompt)

    def turn(self) -> list[Emission] | None:
        """Run a round; return its events, or None when the generation has ended.

        With ``parallel``, it also returns, without events, after each chunk of the prompt but the
        last; ``metrics.prefill_tokens_left`` says how much of the prompt is left.
        """
        with self._lock:
            try:
                events = list(self._ready) or self._run_round()
            except StopIteration:
                return None
            self._events += events
            return events

    def _run_round(self) -> list[Emission]:
        self._running = True
        try:
            events = next(self._rounds)
            if self._splitter is not None:
                events = _with_thinking(events, self._splitter)
        except StopIteration:
            if self.result is None and not self._abandoned:
                self._finish()
            raise
        except BaseException:
            self._abandoned = True
            raise
        finally:
            self._running = False
        if self._abandoned:  # closed while the round ran
            self._drop()
            return []
        return events

    def cancel(self) -> None:
        """End the generation after the current pass, with reason ``cancelled``."""
        self._request.cancelled.set()
        self._place.call()

    def close(self) -> None:
        """Abandon the stream: no further events, and no result if there is none yet.

        While another thread waits for an event, this waits until the running pass has ended,
        and the other thread's loop over the events ends as well. Called in the middle of a
        round of the same thread, as a signal handler may, it takes effect after that round.
        """
        self._abandoned = True
        self.cancel()
        with self._lock:
            if not self._running:
                self._drop()

    def _drop(self) -> None:
        self._ready = iter(())
        self._running = True
        try:
            self._rounds.close()  # type: ignore[attr-defined]
        finally:
            self._running = False

    def _finish(self) -> None:
        stop, sampler = self._request.stop, self._request.sampler
        self.result = Generation(
            text=stop.finish(),
            events=self._events,
            prompt_tokens=len(self._request.prompt),
            finish_reason=stop.reason or "cancelled",
            metrics=self.metrics,
            seed=sampler.streams.seed,
            plan=self._plan(),
            thinking="" if self._splitter is None else self._splitter.thinking,
            tokens=(
                None if self._request.logprobs is None else scored(self._events, self._written)
            ),
        )


def _with_thinking(events: list[Emission], splitter: Splitter) -> list[Emission]:
    """Return a round's events with the thinking that each token adds."""
    taken = splitter.take()
    known = [*taken, *[None] * (len(events) - len(taken))]  # not those of a token that ends a text
    return [event._replace(thinking=thought) for event, thought in zip(events, known, strict=True)]
