"""What computes a program's functions anywhere: the interpreter of the saved file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from edgedec.coreml.constants import Constants
from edgedec.coreml.interpreter import Interpreter, empty_state
from edgedec.coreml.types import Array
from edgedec.runtimes._static.executor import Executor, Feeds
from edgedec.runtimes.coreml.facts import STATE


class CoremlExecutor(Executor, Protocol):
    """An executor whose functions can be made ready before they are needed."""

    def load(self, function: str) -> None:
        """Make a function ready, as ``predict`` does when it is first needed."""
        ...


class ReferenceExecutor:
    """Implements ``edgedec.runtimes._static.executor.Executor`` by the interpreter."""

    value_bytes = 4

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        self._functions: dict[str, Interpreter] = {}

    def _function(self, name: str) -> Interpreter:
        if name not in self._functions:
            self._functions[name] = Interpreter(self._constants, name)
        return self._functions[name]

    def load(self, function: str) -> None:
        self._function(function)

    def new_state(self) -> dict[str, Array]:
        return empty_state(self._function("top_1").function)

    def stop_of(self, state: Any) -> None:
        return None

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> dict[str, Array]:
        return self._function(function).run(feeds, state, check)

    def read(self, state: Any) -> Array:
        cache: Array = state[STATE]
        return cache

    def write(self, state: Any, cache: Array) -> None:
        state[STATE][...] = cache

    def release(self, state: Any) -> None:
        """Do nothing: the memory is freed with its last reference."""

    def close(self) -> None:
        self._functions.clear()
