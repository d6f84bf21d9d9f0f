"""A session whose committed tokens can be saved and loaded."""

from __future__ import annotations

from abc import abstractmethod
from typing import BinaryIO, ClassVar

from edgedec.decoding import snapshot
from edgedec.decoding.session_base import SessionBase
from edgedec.errors import CapacityExceeded


class SnapshotSession(SessionBase):
    """Adds ``save`` and ``load`` for models whose ``Capabilities.snapshot`` is true.

    Attributes:
        runtime: its name in saved states.

    """

    runtime: ClassVar[str]

    # -- implemented by a runtime ----------------------------------------------------------------

    @abstractmethod
    def _fingerprint(self) -> str:
        """Return an identifier of the model that a saved state belongs to."""

    @abstractmethod
    def _state(self) -> snapshot.Payload:
        """Return the committed tokens' state, as bytes in parts."""

    @abstractmethod
    def _most_bytes(self) -> int:
        """Return the size of the largest state that fits this session, in bytes."""

    @abstractmethod
    def _restore(self, payload: bytearray, length: int, rest: BinaryIO) -> int:
        """Restore what ``_state`` returned at ``length`` tokens; return how many are committed now.

        ``rest`` is the file after the state, for a session that saves several.
        """

    # -- saving ---------------------------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        self._check_saveable("save")
        model, payload = self._fingerprint(), self._state()
        snapshot.write(
            file, runtime=self.runtime, model=model, length=self._length, payload=payload
        )

    def load(self, file: BinaryIO) -> None:
        self._check_saveable("load")
        model, most = self._fingerprint(), self._most_bytes()
        length, payload = snapshot.read(file, runtime=self.runtime, model=model, most=most)
        if length > self.capacity:
            raise CapacityExceeded(
                f"load(): expected a state of at most {self.capacity} tokens, got {length}:"
                " open a larger session"
            )
        self._length = self._restore(payload, length, file)
        self._tree, self._pending = None, 0

    def _check_saveable(self, call: str) -> None:
        if self._closed or not self._capabilities.snapshot:
            raise self._not_saved(call)
