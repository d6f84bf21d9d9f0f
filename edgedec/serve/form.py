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
from edgedec.serve.models import Models, Visit
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits

Chunk = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]


def event(data: Chunk, name: str = "") -> str:
    """Return a server-sent event."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


class Form:
    """OpenAI's own form: chunks as server-sent events.

    Args:
        head: fields that its chunks share: ``id``, ``created``, ``model``.

    Attributes:
        loading_s: seconds for which the request waited for its model to be loaded.
        reason, figures: what ``part`` has noted.

    """

    media_type = "text/event-stream"
    loading_s = 0.0

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        self.parsed, self.head = parsed, head
        self.reason, self.figures = "stop", Chunk()

    def part(self, answer: Chunk) -> Chunk:
        """Return the text of an answer or a chunk; note its figures, and how it ends."""
        (choice,) = answer["choices"]
        self.reason = choice["finish_reason"] or self.reason
        self.figures = answer.get("edgedec", self.figures)
        part: Chunk = choice.get("delta", choice.get("message", choice))
        return part

    def begin(self) -> str:
        """Return what a stream begins with."""
        return ""

    def chunk(self, chunk: Chunk) -> str:
        return event(chunk)

    def end(self, usage: Chunk | None) -> str:
        """Return the end of a stream; ``usage`` is its last chunk, if it was asked for."""
        return (self.chunk(usage) if usage else "") + "data: [DONE]\n\n"

    def failed(self, error: ApiError) -> str:
        """Return the end of a stream that fails."""
        return event(error.body()) + "data: [DONE]\n\n"

    def whole(self, answer: Chunk) -> Chunk:
        return answer


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a route reads a request for texts, and how it answers.

    Attributes:
        read: parses the fields of a request.
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
    """The parts of the server that an API's routes use; see ``app.Routes``."""

    models: Models

    def route(
        self, path: str, handler: Handler, *methods: str, body: Callable[[ApiError], Chunk] = ...
    ) -> Route: ...

    def texts(self, path: str, dialect: Dialect) -> Route: ...

    async def read(
        self, request: Request, visit: Visit, use: Callable[[Chunk], Any], *, threaded: bool
    ) -> Any: ...


EMBEDDINGS = "this server generates text and has no embeddings: use a server for embeddings"


def absent(
    router: Router, path: str, why: str, body: Callable[[ApiError], Chunk] = ApiError.body
) -> Route:
    """Return a route that clients look for and that is refused; ``why`` says what to do instead."""

    async def refused(request: Request) -> Response:
        # OpenAI's clients repeat a request that gets 501.
        raise ApiError(404, why, code="not_available")

    return router.route(path, refused, "GET", "POST", "DELETE", body=body)
