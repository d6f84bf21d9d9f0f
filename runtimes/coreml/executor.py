"""What computes a program's functions: CoreML on a Mac, the interpreter anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter, empty_state
from edgedec.coreml.types import Array
from edgedec.runtimes.coreml.facts import STATE

Feeds = Mapping[str, Array]


class Executor(Protocol):
    """Computes the functions of one program; states are its own objects.

    Attributes:
        value_bytes: of a number of a state.

    """

    value_bytes: int

    def new_state(self) -> Any:
        """Return an empty cache."""
        ...

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> dict[str, Array]:
        """Compute a function, which changes the state; floating-point results are float32.

        ``check`` raises to end the call; it may be called at any time, or never.
        """
        ...

    def read(self, state: Any) -> Array:
        """Return the whole cache."""
        ...

    def write(self, state: Any, cache: Array) -> None:
        """Replace the whole cache."""
        ...

    def close(self) -> None:
        """Release the functions."""
        ...


class ReferenceExecutor:
    """The interpreter of the saved file.

    Args:
        constants: of the program.

    """

    value_bytes = 4

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._functions: dict[str, Interpreter] = {}

    def _function(self, name: str) -> Interpreter:
        if name not in self._functions:
            self._functions[name] = Interpreter(self._constants, name)
        return self._functions[name]

    def new_state(self) -> dict[str, Array]:
        return empty_state(self._function("top_1").function)

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> dict[str, Array]:
        return self._function(function).run(feeds, state, check)

    def read(self, state: Any) -> Array:
        cache: Array = state[STATE]
        return cache

    def write(self, state: Any, cache: Array) -> None:
        state[STATE][...] = cache

    def close(self) -> None:
        self._functions.clear()
