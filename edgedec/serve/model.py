"""The served model: its pipeline's turns, tokenizer and facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time
from typing import Any

from edgedec.hardware.resident import resident_bytes
from edgedec.pipeline import Pipeline
from edgedec.serve.compiling import Compiler
from edgedec.serve.errors import ApiError
from edgedec.serve.metrics import ServerMetrics
from edgedec.serve.settings import Settings
from edgedec.serve.turns import Turns


class Served:
    """A pipeline that several clients use.

    Args:
        pipeline: opened with ``settings.parallel``.
        settings: of the server.
        granted: returns the bytes that the process may hold; None without a limit.

    """

    def __init__(
        self, pipeline: Pipeline, settings: Settings, granted: Callable[[], int] | None = None
    ) -> None:
        self.settings = settings
        self.tokenizer = pipeline.tokenizer
        self.max_context = pipeline.engine.target.capacity
        self.metrics = ServerMetrics(granted)
        self._pipeline, self._created = pipeline, int(time())
        self.compiler = Compiler(pipeline.grammars)
        self.turns = Turns(
            pipeline,
            parallel=settings.parallel,
            queue=settings.queue,
            finished=self.metrics.finished,
        )
        self.metrics.watch(lambda: self.turns.running, lambda: self.turns.waiting)

    def close(self) -> None:
        """End all texts and threads."""
        self.compiler.close()
        self.turns.close()

    def check_name(self, name: str) -> None:
        """Refuse requests for another model: none is loaded for a request.

        Raises:
            ApiError: it is another name.

        """
        if name != self.settings.name:
            raise ApiError(
                404,
                f"model {name!r:.80}: this server has {self.settings.name!r}",
                param="model",
                code="model_not_found",
            )

    def check_prompt(self, prompt: Sequence[int]) -> None:
        """Refuse a prompt that leaves no room for a token.

        Raises:
            ApiError: it is too long.

        """
        if len(prompt) > self.max_context:
            raise ApiError(
                400,
                f"the prompt has {len(prompt)} tokens and the context holds {self.max_context}:"
                " shorten it",
                param="messages",
                code="context_length_exceeded",
            )

    def card(self) -> dict[str, Any]:
        """Return the model as ``/v1/models`` lists it."""
        return {
            "id": self.settings.name,
            "object": "model",
            "created": self._created,
            "owned_by": "edgedec",
            "edgedec": {
                "max_context": self.max_context,
                "chat": self.tokenizer.chat_template is not None,
                "plan": self._pipeline.plan,
                "notes": self._pipeline.notes,
            },
        }

    def status(self) -> dict[str, Any]:
        """Return what the page shows while it is open."""
        return {
            "running": self.turns.running,
            "waiting": self.turns.waiting,
            "memory_bytes": resident_bytes(),
            "memory_granted_bytes": self.metrics.granted(),
        }
