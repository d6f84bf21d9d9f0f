"""The two routes for what watches a server: whether it takes requests, and whether it is alive."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.serve.errors import Answer, ApiError
from edgedec.serve.form import Router

READY, ALIVE = "/health", "/livez"
PATHS = frozenset((READY, ALIVE))


def routes(router: Router) -> list[Route]:
    """Return the routes.

    They differ since a full queue must keep a balancer from sending more, but must not have a
    supervisor end the process.
    """

    async def ready(request: Request) -> Response:
        return _answer(router.models.check_ready)

    async def alive(request: Request) -> Response:
        return _answer(router.models.check_alive)

    return [router.route(READY, ready, "GET"), router.route(ALIVE, alive, "GET")]


def _answer(check: Callable[[], None]) -> Response:
    """Return 200, or 503 with the reason, whatever status a refused request would get."""
    try:
        check()
    except ApiError as error:
        return error.unready()
    return Answer({"status": "ok"})
