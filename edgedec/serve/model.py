"""The served model: its pipeline's turns, tokenizer and facts."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any, TypeVar

from edgedec._support.amounts import megabytes
from edgedec._support.fields import one_line
from edgedec.generation.own_sampling import values_of
from edgedec.hardware.resident import release_free, resident_bytes
from edgedec.loading.sources import Source
from edgedec.memory.grant import spare
from edgedec.pipeline import Pipeline
from edgedec.serve.bodies import Bodies
from edgedec.serve.body import MOST_VALUES, parsed
from edgedec.serve.compiling import Compiler
from edgedec.serve.errors import UNAVAILABLE, ApiError, reloading
from edgedec.serve.lane import Lane
from edgedec.serve.metrics import ServerMetrics
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Settings
from edgedec.serve.turns import Turns

T = TypeVar("T")
ANSWERED_BY = "X-Edgedec-Model"
DEFAULT_TAG = ":latest"  # which Ollama's clients add to names without one
# Most memory that a byte of JSON becomes: text twice, of up to four bytes a character, and parts.
_PARSED = 12
# Bytes of all bodies, where --memory does not say how many there may be.
_BODIES = 64 << 20
# A text that memory does not hold waits this long for what is being read.
_SETTLED_S = 10.0
# /tokenize says by how much a text is too long, up to this many times the context.
_COUNTED = 8


class Served:
    """A pipeline that several clients use.

    Args:
        pipeline: opened with ``settings.parallel``.
        settings: of the server.
        granted: returns the bytes that the process may hold; None without a limit.

    Attributes:
        created: when the server started, in seconds since 1970.

    """

    def __init__(
        self, pipeline: Pipeline, settings: Settings, granted: Callable[[], int] | None = None
    ) -> None:
        self.settings = settings
        self._names = (settings.name, *settings.aliases)
        self.tokenizer = pipeline.tokenizer
        self.max_context = pipeline.engine.target.capacity
        self.metrics = ServerMetrics(granted)
        self._pipeline, self._granted, self.created = pipeline, granted, int(time())
        self.prompts = Prompts(
            self.tokenizer, self.max_context, self.check_room, sampling=pipeline.sampling
        )
        self.counting = Prompts(
            self.tokenizer, self.max_context, self.check_room, _COUNTED * self.max_context
        )
        self.bodies = Bodies(settings.limits, _BODIES if granted is None else spare(granted()))
        # Reads what takes more than a moment; the bytes that wait for it count as bodies.
        self.reader = Lane("reader")
        self.most_values = MOST_VALUES + settings.limits.choices * self.max_context
        self.compiler = Compiler(pipeline.grammars)
        self.turns = Turns(
            pipeline,
            settings,
            finished=self.metrics.finished,
            settled=lambda: self.reader.settle(_SETTLED_S),
        )
        self.metrics.watch(lambda: self.turns.running, lambda: self.turns.waiting)

    def check_ready(self) -> None:
        """Check that a request would be taken now.

        Raises:
            ApiError: the queue is full, the server is ending, or its model is being reloaded.

        """
        self.turns.check_alive()
        self.turns.check()
        if self._pipeline.reloading:
            raise reloading()

    def end(self) -> None:
        """Refuse requests from now on, those that wait included; texts go on."""
        self.bodies.close()
        self.reader.close()
        self.compiler.close()
        self.turns.end()

    def close(self) -> None:
        """End all texts and threads."""
        self.end()
        self.turns.close()
        self.reader.join()
        self.compiler.join()

    def read_long(self, raw: bytearray, use: Callable[[dict[str, Any]], T]) -> T:
        """Return what becomes of a long body, with its memory given back; in the reader's thread.

        Raises:
            ApiError: it is refused.

        """
        self.check_room(_PARSED * len(raw))
        try:
            return use(parsed(raw, self.most_values))
        finally:
            release_free()

    def check_room(self, needed: int) -> None:
        """Refuse to take memory that the texts may need.

        Raises:
            ApiError: fewer than these bytes are free.

        """
        free = self._pipeline.free_bytes()
        if free is not None and free < needed:
            release_free()
            free = self._pipeline.free_bytes()
        if free is not None and free < needed:
            raise ApiError(
                503,
                f"reading this request takes {megabytes(needed)} MB, and {megabytes(max(0, free))}"
                " MB are free: shorten it, send it again later, or give the server more --memory",
                kind=UNAVAILABLE,
                code="insufficient_memory",
                retry_s=5,
            )

    def says_who(self, asked: str) -> dict[str, str]:
        """Return the header that names the model, for a request that asked for another one."""
        if self._known(asked):
            return {}
        return {ANSWERED_BY: self.settings.name.encode("ascii", "backslashreplace").decode()}

    def _known(self, name: str) -> bool:
        return name.removesuffix(DEFAULT_TAG) in self._names

    def check_name(self, name: str) -> None:
        """Refuse a name that is not the model's.

        Raises:
            ApiError: it is another name.

        """
        if not self._known(name):
            raise ApiError(
                404,
                f"model {one_line(name)}: this server has {self.settings.name!r}",
                param="model",
                code="model_not_found",
            )

    @property
    def target(self) -> Source:
        """The target's files, and what they say of it."""
        return self._pipeline.pair.target

    @property
    def weight_bytes(self) -> int:
        """Bytes of the target's weights as stored."""
        return self._pipeline.target.info.weight_bytes

    @property
    def plan(self) -> dict[str, Any]:
        """How texts are decoded."""
        return self._pipeline.plan

    def card(self) -> dict[str, Any]:
        """Return the model as ``/v1/models`` lists it."""
        own = self.prompts.sampling
        return {
            "id": self.settings.name,
            "object": "model",
            "created": self.created,
            "owned_by": "edgedec",
            "edgedec": {
                "max_context": self.max_context,
                "chat": self.tokenizer.chat_template is not None,
                "sampling": None if own is None else values_of(own),
                "plan": self._pipeline.plan,
                "planning": self.settings.planning,
                "notes": self._pipeline.notes,
            },
        }

    def status(self) -> dict[str, Any]:
        """Return what the page shows while it is open."""
        return {
            "running": self.turns.running,
            "waiting": self.turns.waiting,
            "memory_bytes": resident_bytes(),
            "memory_granted_bytes": None if self._granted is None else self._granted(),
        }
