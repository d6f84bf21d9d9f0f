"""Runs one session's passes, and stops them from another thread."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import onnxruntime as ort

from edgedec.decoding.session_base import Stop, check_interrupt, closed
from edgedec.errors import Interrupted, PassFailed

Run = Callable[[ort.IOBinding, ort.RunOptions], None]


class Terminate:
    """``RunOptions.terminate`` with the methods of an event."""

    def __init__(self, options: ort.RunOptions) -> None:
        self._options = options

    def set(self) -> None:
        self._options.terminate = True

    def clear(self) -> None:
        self._options.terminate = False

    def is_set(self) -> bool:
        """Return whether a stop is requested."""
        return bool(self._options.terminate)


class Runner(ABC):
    """Runs one sequence's passes, one at a time, until it is closed.

    Args:
        maker: name of the library that computes, for messages.

    """

    def __init__(self, stop: Stop, maker: str) -> None:
        self.stop = stop
        self._maker = maker
        self._closed = False
        self._busy = threading.Lock()

    def close(self) -> None:
        """Stop a pass that another thread runs; release the bindings and the weights."""
        self.stop.set()
        with self._busy:  # the cache must not be freed while a pass writes to it
            if not self._closed:
                self._closed = True
                self._release()

    @abstractmethod
    def _release(self) -> None:
        """Drop references to the weights and the cache."""

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    def _attempt(self, compute: Callable[..., None], *inputs: Any) -> None:
        """Compute a pass from these inputs.

        Raises:
            Interrupted: ``stop`` was set.
            PassFailed: it failed.

        """
        try:
            compute(*inputs)
        except (PassFailed, Interrupted):
            check_interrupt(self.stop)
            raise
        except Exception as error:  # these libraries' own errors share no public base
            check_interrupt(self.stop)
            reason = str(error).strip().splitlines()[0]
            raise PassFailed(f"{self._maker} could not run a pass: {reason}") from error


class OrtRunner(Runner):
    """Runs passes of an inference session.

    Args:
        inference: computes all passes; None if a subclass's ``_pass`` chooses.

    Attributes:
        options: run options of every pass.

    """

    def __init__(self, inference: ort.InferenceSession | None = None) -> None:
        self.options = ort.RunOptions()
        super().__init__(Terminate(self.options), "ONNX Runtime")
        self.options.log_severity_level = 4  # an interrupted pass should not be logged
        # Explicitly "no graph capture": looking up a missing entry raises inside onnxruntime's
        # Python code, which costs 35 microseconds per pass.
        self.options.add_run_config_entry("gpu_graph_id", "-1")
        self._run: Run | None = None if inference is None else inference.run_with_iobinding

    def _release(self) -> None:
        self._run = None

    def _pass(self, binding: ort.IOBinding) -> None:
        assert self._run is not None
        self._run(binding, self.options)
