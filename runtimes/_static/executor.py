"""The protocol of an executor, which computes the functions of a fixed-width program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy.typing as npt

from edgedec.decoding.session_base import Stop

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]


class Executor(Protocol):
    """Computes the functions of one program; the type of a state is private to the executor.

    For each width ``n`` there are ``top_n``, whose results are the largest logits of each row
    (``top_0``) and their ids (``top_1``), ``logits_n`` with all ``logits``, and ``read_m``, which
    reads a chunk of a prompt and whose result is not used.

    Attributes:
        value_bytes: bytes of one number in a state.

    """

    value_bytes: int

    def new_state(self) -> Any:
        """Return an empty cache."""
        ...

    def stop_of(self, state: Any) -> Stop | None:
        """Return what stops a running pass of this state; None if passes use ``check``."""
        ...

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> Mapping[str, Array]:
        """Compute a function, which changes the state; floating-point results are float32.

        Results are valid until the next call with the same state. ``check`` raises to end the call;
        it may be called at any time, or never.
        """
        ...

    def read(self, state: Any) -> Array:
        """Return the whole cache."""
        ...

    def write(self, state: Any, cache: Array) -> None:
        """Replace the whole cache."""
        ...

    def release(self, state: Any) -> None:
        """Free a cache, after the pass that another thread may be running with it."""
        ...

    def close(self) -> None:
        """Release the functions."""
        ...
