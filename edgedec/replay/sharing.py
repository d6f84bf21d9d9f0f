"""Resources that two models share: they slow each other's passes, and the GIL serialises Python."""

from __future__ import annotations

from collections.abc import Callable

from edgedec.overlap.clock import Clock, Signal


class Shared:
    """Caches, memory bandwidth, cores and Python's interpreter lock, shared by target and draft.

    A pass advances at full speed while the other model rests, and at 1 / factor of it while the
    other computes, so a pass that overlaps in part is slowed in part.

    Args:
        clock: virtual.
        factors: by role, seconds at once over seconds alone; a missing role is not slowed.

    """

    def __init__(self, clock: Clock, factors: dict[str, float] | None = None) -> None:
        self._clock = clock
        self._factors = factors or {}
        self._running: list[tuple[str, Signal]] = []
        self._interpreting = False
        self._interpreted = clock.signal()

    def compute(
        self, role: str, wake: Signal, seconds: float, interrupted: Callable[[], bool]
    ) -> None:
        """Return when a pass has taken ``seconds`` of undisturbed computing.

        Args:
            role: ``target`` or ``draft``.
            wake: of the session; setting it makes the pass ask ``interrupted``.
            seconds: of the pass alone.
            interrupted: asked when woken; True ends the pass.

        """
        if not self._factors:
            wake.wait(seconds)
            return
        me = (role, wake)
        self._changed(role)
        self._running.append(me)
        left = seconds
        try:
            while left > 0:
                factor, begin = self._factor(role), self._clock.now()
                woken = wake.wait(left * factor)
                if not woken or interrupted():
                    return
                wake.clear()
                left -= (self._clock.now() - begin) / factor
        finally:
            self._running.remove(me)
            self._changed(role)

    def interpret(self, seconds: float) -> None:
        """Let Python work for this long, which two threads do one after the other."""
        while self._interpreting:
            self._interpreted.wait()
        self._interpreting = True
        self._interpreted.clear()
        try:
            self._clock.sleep(seconds)
        finally:
            self._interpreting = False
            self._interpreted.set()

    def _factor(self, role: str) -> float:
        beside = any(other != role for other, _ in self._running)
        return self._factors.get(role, 1.0) if beside else 1.0

    def _changed(self, role: str) -> None:
        """Wake the other model's passes, whose speed has changed."""
        for other, wake in self._running:
            if other != role and self._factors.get(other, 1.0) != 1.0:
                wake.set()
