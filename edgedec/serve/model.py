"""A loaded model: its pipeline's turns, tokenizer and facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgedec.decoding.sampling import SamplingParams
from edgedec.generation.own_sampling import values_of
from edgedec.pipeline import Pipeline
from edgedec.serve.errors import reloading
from edgedec.serve.lane import Compiler
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Settings
from edgedec.serve.shared import Shared
from edgedec.serve.turns import Turns
from edgedec.text.tokenizer import Tokenizer

ANSWERED_BY = "X-Edgedec-Model"
# A text that memory does not hold waits this long for what is being read.
_SETTLED_S = 10.0
# /tokenize says by how much a text is too long, up to this many times the context.
_COUNTED = 8


class Served:
    """A pipeline that several clients use.

    Args:
        pipeline: opened with ``settings.parallel``.
        settings: of the server, with this model's names.
        shared: what it shares with the server's other models.
        relieve: waits for memory that other models give back; returns whether there may be more.
        rested: called in the decoding thread when its last text has ended.

    """

    def __init__(
        self,
        pipeline: Pipeline,
        settings: Settings,
        shared: Shared,
        relieve: Callable[[], bool] = lambda: False,
        rested: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings, self.pipeline = settings, pipeline
        self.tokenizer = pipeline.tokenizer
        self.max_context = pipeline.engine.target.capacity
        self.prompts = Prompts(
            self.tokenizer, self.max_context, shared.check_room, sampling=pipeline.sampling
        )
        self.counting = Prompts(
            self.tokenizer, self.max_context, shared.check_room, _COUNTED * self.max_context
        )
        self.reader = shared.reader
        self.compiler = Compiler(pipeline.grammars)
        self.turns = Turns(
            pipeline,
            settings,
            finished=shared.metrics.finished,
            settled=lambda: self.reader.settle(_SETTLED_S) or relieve(),
            rested=rested,
        )

    def check_ready(self) -> None:
        """Check that a request would be taken now.

        Raises:
            ApiError: the queue is full, the server is ending, or its model is being reloaded.

        """
        self.turns.check_alive()
        self.turns.check()
        if self.pipeline.reloading:
            raise reloading()

    def end(self) -> None:
        """Refuse requests from now on, those that wait included; texts go on."""
        self.compiler.lane.close()
        self.turns.end()

    def close(self) -> None:
        """End all texts and threads; the pipeline stays open."""
        self.end()
        self.turns.close()
        self.compiler.lane.join()

    def facts(self) -> dict[str, Any]:
        """Return what ``/v1/models`` says of it besides its name."""
        return {
            **asks(self.tokenizer, self.prompts.sampling),
            "max_context": self.max_context,
            "plan": self.pipeline.plan,
            "planning": self.settings.planning,
            "notes": self.pipeline.notes,
        }


def asks(tokenizer: Tokenizer, sampling: SamplingParams | None) -> dict[str, Any]:
    """Return whether a model answers messages, and with which sampling, as ``/v1/models`` does."""
    return {
        "chat": tokenizer.chat_template is not None,
        "sampling": None if sampling is None else values_of(sampling),
    }
