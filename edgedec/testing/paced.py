"""A model whose passes take as long as they would on another device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import BinaryIO

from edgedec.decoding.policy.cost import RunningMedian
from edgedec.decoding.session import Model, OnChunk, OnPhase, Pass, Phase, Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import Interrupted
from edgedec.hardware.clock import Clock, WallClock

# Seconds of a pass, from its rows and the tokens in the cache.
Seconds = Callable[[int, int], float]

# A pass sleeps first, while it can be interrupted, and leaves this many times the usual computing
# time for the end.
_SPARE = 2.0


class PacedModel:
    """A real model whose passes are stretched to a device's time by sleeping.

    The small model itself computes on the processor, so its passes must be faster than the
    device's; a slower one takes its own time.

    Args:
        model: computes the logits; owned by this model from now on.
        seconds: gives the time of a pass; a chunk of a prompt is a pass.
        clock: measures time and sleeps.
        load_s: seconds at the start of each pass in which streamed weights load; the sessions
            are ``StreamedSession`` then. None: weights are not streamed.

    """

    def __init__(
        self,
        model: Model,
        seconds: Seconds,
        clock: Clock | None = None,
        *,
        load_s: float | None = None,
    ) -> None:
        self._model = model
        self.seconds, self.load_s = seconds, load_s
        self.clock: Clock = WallClock() if clock is None else clock
        self.info = dataclasses.replace(model.info, name=f"{model.info.name}, paced")
        self.capabilities = dataclasses.replace(model.capabilities, phases=load_s is not None)

    def open(self, capacity: int) -> PacedSession:
        return PacedSession(self, self._model.open(capacity))

    def close(self) -> None:
        self._model.close()


class PacedSession:
    """A ``Session``, and a ``StreamedSession`` if its model streams."""

    def __init__(self, model: PacedModel, session: Session) -> None:
        self._model, self._session, self._clock = model, session, model.clock
        self._stop = model.clock.signal()
        self._usual = RunningMedian(9, [0.0])
        self._on_phase: OnPhase | None = None

    @property
    def length(self) -> int:
        return self._session.length

    @property
    def capacity(self) -> int:
        return self._session.capacity

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        begin, before = self._clock.now(), self._session.length

        def chunk(done: int, total: int) -> None:
            nonlocal begin, before
            length = self._session.length
            self._hold(begin + self._model.seconds(length - before, before) - self._clock.now())
            if on_chunk is not None:
                on_chunk(done, total)
            begin, before = self._clock.now(), length

        self._hold(0.0)
        self._load()
        self._session.prefill(tokens, chunk)

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        self._load()
        begin, seconds = self._clock.now(), self._model.seconds(len(tree) - start, self.length)
        self._hold(seconds - _SPARE * self._usual.value)
        computing = self._clock.now()
        scored = self._session.forward(tree, start, want)
        end = self._clock.now()
        self._usual.add(end - computing)
        self._clock.sleep(max(0.0, begin + seconds - end))
        return scored

    def watch(self, on_phase: OnPhase | None) -> None:
        self._on_phase = on_phase

    def commit(self, path: Sequence[int]) -> None:
        self._session.commit(path)

    def rollback(self, length: int) -> None:
        self._session.rollback(length)

    def fork(self, length: int) -> PacedSession:
        return PacedSession(self._model, self._session.fork(length))

    def save(self, file: BinaryIO) -> None:
        self._session.save(file)

    def load(self, file: BinaryIO) -> None:
        self._session.load(file)

    def interrupt(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._session.close()

    def _load(self) -> None:
        if self._model.load_s is not None:
            self._tell(Phase.LOAD)
            self._hold(self._model.load_s)
            self._tell(Phase.COMPUTE)

    def _tell(self, phase: Phase) -> None:
        if self._on_phase is not None:
            self._on_phase(phase)

    def _hold(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            self._stop.clear()
            raise Interrupted("interrupted")
