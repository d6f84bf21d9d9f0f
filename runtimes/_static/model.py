"""A program of fixed widths, loaded once and shared by all sessions."""

from __future__ import annotations

from collections.abc import Callable

from edgedec.decoding.session import Capabilities, ModelInfo, Session
from edgedec.decoding.session_base import check_capacity
from edgedec.errors import StateError
from edgedec.runtimes._static.executor import Executor
from edgedec.runtimes._static.facts import StaticShapeFacts


class StaticShapeModel:
    """Implements ``edgedec.decoding.session.Model``; a runtime adds loading.

    Attributes:
        fingerprint: identifies the model in saved states.
        session: a class of ``StaticShapeSession``, called with the model and a capacity.

    """

    session: Callable[[StaticShapeModel, int], Session]
    fingerprint: str

    def __init__(
        self,
        facts: StaticShapeFacts,
        executor: Executor,
        weight_bytes: int,
        threads: int = 1,
    ) -> None:
        self.facts = facts
        self._executor: Executor | None = executor
        self.capabilities = Capabilities(row_widths=facts.rows, top_k=facts.top_k, snapshot=True)
        entries, heads, slots, width = facts.cache
        self.info = ModelInfo(
            name=facts.name,
            vocab_size=facts.vocab_size,
            eos_ids=facts.eos_ids,
            max_context=min(facts.max_context, slots),
            kv_bytes_per_token=entries * heads * width * executor.value_bytes,
            weight_bytes=weight_bytes,
            threads=threads,
        )

    @property
    def executor(self) -> Executor:
        """The executor of the functions; raises StateError once the model is closed."""
        if self._executor is None:
            raise StateError("the model is closed: load it again")
        return self._executor

    def open(self, capacity: int) -> Session:
        check_capacity(capacity, self.info.max_context)
        return self.session(self, capacity)

    def close(self) -> None:
        """Release the program."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None
