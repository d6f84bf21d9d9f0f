"""Runs the sessions of all blocks as if they were one session of the whole graph."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime as ort

from edgedec.decoding.session import Phase
from edgedec.errors import Interrupted
from edgedec.runtimes.onnx.streaming.pager import Pager

Tell = Callable[[Phase], None]
_POLL_S = 0.05


def _nobody(phase: Phase) -> None:
    pass


class ChainBinding:
    """The bindings of all blocks; an input is bound to every block that reads it."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.parts = [session.io_binding() for session in chain.sessions]
        self._nothing = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, 1), np.float32))
        self.forget()

    def bind_input(self, name: str, *place: Any) -> None:
        """See ``onnxruntime.IOBinding``."""
        for reader in self._chain.readers[name]:
            self.parts[reader].bind_input(name, *place)

    def bind_output(self, name: str, *place: Any) -> None:
        """See ``onnxruntime.IOBinding``."""
        self.parts[self._chain.makers[name]].bind_output(name, *place)

    def hand_on(self, block: int) -> None:
        """Bind a block's outputs as inputs of the blocks that read them."""
        made = self._chain.handed[block]
        if not made:
            return
        # These were bound first, and outputs come in that order.
        for name, value in zip(made, self.parts[block].get_outputs(), strict=False):
            for reader in self._chain.readers[name]:
                self.parts[reader].bind_ortvalue_input(name, value)

    def forget(self) -> None:
        """Release the values between blocks, since every binding would keep its own."""
        for part, made in zip(self.parts, self._chain.handed, strict=True):
            for name in made:
                part.bind_output(name, "cpu")
                for reader in self._chain.readers[name]:
                    self.parts[reader].bind_ortvalue_input(name, self._nothing)


class Chain:
    """Implements the methods of ``onnxruntime.InferenceSession`` that passes use.

    Args:
        sessions: sessions of the blocks, in the order in which they are computed.
        pager: loads their weights; closed with the chain.

    """

    def __init__(self, sessions: Sequence[ort.InferenceSession], pager: Pager) -> None:
        self.sessions = sessions
        self._pager = pager
        # Memory that a thread is reading into must not be unmapped with the sessions.
        weakref.finalize(self, pager.close)
        self._busy = threading.Lock()
        self._broken = False
        self.readers: dict[str, list[int]] = {}
        self.makers: dict[str, int] = {}
        for at, session in enumerate(sessions):
            for node in session.get_inputs():
                self.readers.setdefault(node.name, []).append(at)
            self.makers.update((node.name, at) for node in session.get_outputs())
        crossing = self.makers.keys() & self.readers.keys()
        self.handed = [
            [node.name for node in session.get_outputs() if node.name in crossing]
            for session in sessions
        ]
        self._crossing = crossing

    @property
    def streamed_bytes(self) -> int:
        """Bytes that are read in every pass."""
        return self._pager.streamed_bytes

    def get_inputs(self) -> list[Any]:
        """Return the inputs of the whole graph."""
        found = {n.name: n for session in self.sessions for n in session.get_inputs()}
        return [node for name, node in found.items() if name not in self._crossing]

    def get_outputs(self) -> list[Any]:
        """Return the outputs of the whole graph."""
        found = {n.name: n for session in self.sessions for n in session.get_outputs()}
        return [node for name, node in found.items() if name not in self._crossing]

    def get_providers(self) -> list[str]:
        """Return the providers, which all blocks share."""
        providers: list[str] = self.sessions[0].get_providers()
        return providers

    def io_binding(self) -> ChainBinding:
        """Return a binding in which only the values between blocks are bound."""
        return ChainBinding(self)

    def run_with_iobinding(
        self, binding: ChainBinding, options: ort.RunOptions, tell: Tell = _nobody
    ) -> None:
        """Run all blocks, each when its weights are in memory.

        Args:
            binding: binds all inputs and outputs.
            options: ``terminate`` ends the pass, also while it waits for weights.
            tell: called with the phase when it changes.

        Raises:
            Interrupted: ended by ``terminate`` while waiting.
            PassFailed: weights could not be read.

        """

        def stop() -> bool:
            return bool(options.terminate)

        with self._one_at_a_time(stop):
            if self._broken:
                self._pager.restart()
                self._broken = False
            phases = _Phases(tell)
            phases.tell(Phase.LOAD)
            try:
                for at, session in enumerate(self.sessions):
                    self._pager.take(at, stop, lambda: phases.tell(Phase.LOAD))
                    phases.tell(Phase.COMPUTE)
                    session.run_with_iobinding(binding.parts[at], options)
                    binding.hand_on(at)
                    self._pager.release(at)
            except BaseException:
                self._broken = True
                raise
            finally:
                binding.forget()

    @contextmanager
    def _one_at_a_time(self, stop: Callable[[], bool]) -> Iterator[None]:
        """Let one pass run at a time, since the weights in memory belong to one pass."""
        while not self._busy.acquire(timeout=_POLL_S):
            if stop():
                raise Interrupted("interrupted")
        try:
            yield
        finally:
            self._busy.release()


class _Phases:
    """Reports each change of phase once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._now: Phase | None = None

    def tell(self, phase: Phase) -> None:
        if phase is not self._now:
            self._now = phase
            self._tell(phase)
