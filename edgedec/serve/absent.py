"""Routes that clients look for and this server does not have: each says what to do instead."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.serve.errors import ApiError
from edgedec.serve.form import Chunk, Router

EMBEDDINGS = "this server generates text and has no embeddings: use a server for embeddings"
_METHODS = ("GET", "POST", "DELETE")


def route(
    router: Router, path: str, why: str, body: Callable[[ApiError], Chunk] = ApiError.body
) -> Route:
    """Return a route that is refused.

    Args:
        router: counts it.
        path: of the route; those that there are come before it.
        why: what there is instead.
        body: of the error.

    """

    async def refused(request: Request) -> Response:
        # OpenAI's clients repeat a request that gets 501.
        raise ApiError(404, why, code="not_available")

    return router.route(path, refused, *_METHODS, body=body)
