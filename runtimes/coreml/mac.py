"""Computes functions with CoreML, on macOS.

Nothing here has run on a Mac yet: it follows coremltools 9.0's documentation of
``CompiledMLModel`` and of ``MLState``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.coreml.types import Array
from edgedec.errors import PassFailed
from edgedec.runtimes._static.executor import Feeds
from edgedec.runtimes.coreml.compiled import CompiledProgram
from edgedec.runtimes.coreml.facts import STATE


class MacExecutor:
    """Functions of a program, each loaded when it is first needed.

    Args:
        program: what CoreML compiled; closed with this.
        device: ``cpu``, ``gpu`` or ``ane``; CoreML may choose another.

    """

    value_bytes = 2

    def __init__(self, program: CompiledProgram, device: str) -> None:
        self._program, self._device = program, device
        self._functions: dict[str, Any] = {}
        self._loading = threading.Lock()

    def _function(self, name: str) -> Any:
        with self._loading:
            if name not in self._functions:
                self._functions[name] = self._program.load(name, self._device)
            return self._functions[name]

    def load(self, function: str) -> None:
        self._function(function)

    def new_state(self) -> Any:
        return self._function("top_1").make_state()

    def stop_of(self, state: Any) -> None:
        return None

    def predict(
        self, function: str, feeds: Feeds, state: Any, check: Callable[[], None]
    ) -> dict[str, Array]:
        check()
        given = {
            name: value.astype(np.float16) if value.dtype == np.float32 else value
            for name, value in feeds.items()
        }
        try:
            found = self._function(function).predict(given, state)
        except Exception as error:
            raise PassFailed(f"CoreML failed in {function}: {one_line(str(error))}") from None
        return {
            name: value.astype(np.float32) if value.dtype == np.float16 else value
            for name, value in found.items()
        }

    def read(self, state: Any) -> Array:
        cache: Array = state.read_state(STATE)
        return cache

    def write(self, state: Any, cache: Array) -> None:
        state.write_state(STATE, cache)

    def release(self, state: Any) -> None:
        """Do nothing: the memory is freed with its last reference."""

    def close(self) -> None:
        self._functions.clear()
        self._program.close()
