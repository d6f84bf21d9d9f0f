"""The form of an answer on the wire; each API's is a file of its own.

``Writer`` (``answers``) makes OpenAI's chunks and whole answers, and a form turns those into what
its API sends. So every route has the same queue, limits and way of decoding.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.serve.errors import ApiError
from edgedec.serve.models import Models
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits
from edgedec.serve.visit import Visit

Chunk = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]


class Form:
    """OpenAI's own form: chunks as server-sent events.

    Args:
        parsed: the request.
        head: fields that its chunks share: ``id``, ``created``, ``model``.

    Attributes:
        loading_s: seconds for which the request waited for its model to be loaded.

    """

    media_type = "text/event-stream"
    loading_s = 0.0

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        self.parsed, self.head = parsed, head

    def begin(self) -> str:
        """Return what a stream begins with."""
        return ""

    def chunk(self, chunk: Chunk) -> str:
        """Return a chunk of a stream."""
        return f"data: {json.dumps(chunk)}\n\n"

    def end(self, usage: Chunk | None) -> str:
        """Return the end of a stream; ``usage`` is its last chunk, if it was asked for."""
        return (self.chunk(usage) if usage else "") + "data: [DONE]\n\n"

    def failed(self, error: ApiError) -> str:
        """Return the end of a stream that fails."""
        return f"data: {json.dumps(error.body())}\n\ndata: [DONE]\n\n"

    def whole(self, answer: Chunk) -> Chunk:
        """Return a whole answer."""
        return answer


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a route reads a request for texts, and how it answers.

    Attributes:
        read: parses the fields of a request.
        form: of the answer.
        body: of an error.
        templated: whether reading renders a chat template, which takes a moment.
        bare: returns the answer to a request without a text, which is for its model to be loaded or
            dropped; None if it has one.

    """

    read: Callable[[dict[str, Any], Prompts, Limits], ParsedRequest]
    form: Callable[[ParsedRequest, Chunk], Form] = Form
    body: Callable[[ApiError], Chunk] = field(default=ApiError.body)
    templated: bool = False
    bare: Callable[[dict[str, Any]], ParsedRequest | None] = lambda fields: None


class Router(Protocol):
    """What the routes of an API need of the server."""

    models: Models

    def route(
        self, path: str, handler: Handler, *methods: str, body: Callable[[ApiError], Chunk] = ...
    ) -> Route:
        """Return a route that is counted, and whose errors have this body."""

    def texts(self, path: str, dialect: Dialect) -> Route:
        """Return a route that answers with generated texts."""

    async def read(
        self,
        request: Request,
        visit: Visit,
        use: Callable[[dict[str, Any]], Any],
        *,
        threaded: bool,
    ) -> Any:
        """Return what becomes of a request's JSON, once its model is loaded."""
