"""What all models of a server share: its settings, the reading of bodies, figures, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from edgedec._support.amounts import megabytes
from edgedec.hardware.resident import release_free
from edgedec.memory.grant import spare
from edgedec.serve.bodies import Bodies
from edgedec.serve.body import MOST_VALUES, parsed
from edgedec.serve.errors import UNAVAILABLE, ApiError
from edgedec.serve.lane import Lane
from edgedec.serve.metrics import ServerMetrics
from edgedec.serve.settings import Settings

T = TypeVar("T")
# Most memory that a byte of JSON becomes: text twice, of up to four bytes a character, and parts.
_PARSED = 12
# Bytes of all bodies, where --memory does not say how many there may be.
_BODIES = 64 << 20


class Shared:
    """What all models of a server share.

    Args:
        settings: of the server.
        granted: returns the bytes that the process may hold; None without a limit.
        free: returns the bytes of it that each model leaves free; None without a limit.

    Attributes:
        longest: tokens of the longest context, in which a body's values may be tokens.

    """

    def __init__(
        self,
        settings: Settings,
        granted: Callable[[], int] | None,
        free: Callable[[], Iterable[int | None]],
    ) -> None:
        self.settings, self.granted, self._free = settings, granted, free
        self.metrics = ServerMetrics(granted)
        self.bodies = Bodies(settings.limits, _BODIES if granted is None else spare(granted()))
        # Reads what takes more than a moment; the bytes that wait for it count as bodies.
        self.reader = Lane("reader")
        self.longest = 0

    def end(self) -> None:
        """Turn away what is being read."""
        self.bodies.close()
        self.reader.close()

    def read_long(self, raw: bytearray, use: Callable[[dict[str, Any]], T]) -> T:
        """Return what becomes of a long body, with its memory given back; in the reader's thread.

        Raises:
            ApiError: it is refused.

        """
        self.check_room(_PARSED * len(raw))
        try:
            return use(parsed(raw, MOST_VALUES + self.settings.limits.choices * self.longest))
        finally:
            release_free()

    def check_room(self, needed: int) -> None:
        """Refuse to take memory that the texts may need.

        Raises:
            ApiError: fewer than these bytes are free.

        """
        free = self._least_free()
        if free is not None and free < needed:
            release_free()
            free = self._least_free()
        if free is not None and free < needed:
            raise ApiError(
                503,
                f"reading this request takes {megabytes(needed)} MB, and {megabytes(max(0, free))}"
                " MB are free: shorten it, send it again later, or give the server more --memory",
                kind=UNAVAILABLE,
                code="insufficient_memory",
                retry_s=5,
            )

    def _least_free(self) -> int | None:
        return min((one for one in self._free() if one is not None), default=None)
