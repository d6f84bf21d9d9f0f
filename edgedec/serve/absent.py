"""Routes that clients look for and this server does not have: each says what to do instead."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.serve.errors import ApiError
from edgedec.serve.form import Handler, Server

_EMBEDDINGS = "this server generates text and has no embeddings: use a server for embeddings"
_STORED = "this server stores no answers: send the whole conversation to /v1/responses"
# 404, since OpenAI's clients repeat requests that get 501.
_ROUTES = {
    "/v1/embeddings": _EMBEDDINGS,
    "/api/embed": _EMBEDDINGS,
    "/api/embeddings": _EMBEDDINGS,
    "/v1/responses/{rest:path}": _STORED,
    "/api/{rest:path}": "this server answers /api/chat, /api/generate, /api/show, /api/tags,"
    " /api/ps and /api/version of Ollama's API, and serves the one model it was started with",
}
_METHODS = ("GET", "POST", "DELETE")


def routes(server: Server) -> list[Route]:
    """Return them; they come after all routes that there are."""
    return [server.route(path, _refused(why), *_METHODS) for path, why in _ROUTES.items()]


def _refused(why: str) -> Handler:
    async def handler(request: Request) -> Response:
        raise ApiError(404, why, code="not_available")

    return handler
