"""CoreML through coremltools, on macOS.

Nothing here has run on a Mac yet: it follows coremltools 9.0's documentation of ``MLModel`` with
functions and of ``MLState``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgedec._support.fields import one_line
from edgedec.coreml.types import Array
from edgedec.errors import PassFailed, RuntimeUnavailable
from edgedec.runtimes._fixed.executor import Feeds
from edgedec.runtimes.coreml.devices import COMPUTE_UNITS
from edgedec.runtimes.coreml.facts import STATE


class MacExecutor:
    """Functions of a package, each loaded when it is first needed.

    Args:
        folder: the ``.mlpackage``.
        device: ``cpu``, ``gpu`` or ``ane``; CoreML may choose another.

    """

    value_bytes = 2

    def __init__(self, folder: Path, device: str) -> None:
        import coremltools

        self._tools: Any = coremltools
        self._folder, self._device = folder, device
        self._functions: dict[str, Any] = {}
        self._loading = threading.Lock()

    def _function(self, name: str) -> Any:
        with self._loading:
            if name not in self._functions:
                units = getattr(self._tools.ComputeUnit, COMPUTE_UNITS[self._device])
                try:
                    self._functions[name] = self._tools.models.MLModel(
                        str(self._folder), function_name=name, compute_units=units
                    )
                except Exception as error:  # whatever the system says
                    raise RuntimeUnavailable(
                        f"{self._folder}: CoreML does not load {name} on {self._device}:"
                        f" {one_line(str(error))}"
                    ) from None
            return self._functions[name]

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
