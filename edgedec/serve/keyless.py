"""Routes without a key: the page at ``/``, which asks for it, and what watches a server."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.serve.errors import Answer, ApiError
from edgedec.serve.form import Router

# Other files of the folders, such as licences, are not served.
_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
}


def _files() -> dict[str, tuple[bytes, str]]:
    """Return contents and type of each file, by its path on the server."""
    static = resources.files("edgedec.serve").joinpath("static")
    folders = (("/page/", static), ("/page/vendor/", static.joinpath("vendor")))
    found = {
        path + file.name: (file.read_bytes(), kind)
        for path, folder in folders
        for file in folder.iterdir()
        if (kind := _KINDS.get(file.name.rpartition(".")[2])) is not None
    }
    return {"/": found.pop("/page/index.html"), **found}


READY, ALIVE = "/health", "/livez"
_FILES = _files()
PATHS = frozenset((*_FILES, READY, ALIVE))


def routes(router: Router) -> list[Route]:
    """Return a route for each file of the page, and two that say whether the server is up.

    Those differ since a full queue must keep a balancer from sending more, but must not have a
    supervisor end the process.
    """

    async def ready(request: Request) -> Response:
        return _answer(router.models.check_ready)

    async def alive(request: Request) -> Response:
        return _answer(router.models.check_alive)

    return [
        router.route(READY, ready, "GET"),
        router.route(ALIVE, alive, "GET"),
        *(_route(path, content, kind) for path, (content, kind) in _FILES.items()),
    ]


def _answer(check: Callable[[], None]) -> Response:
    """Return 200, or 503 with the reason, whatever status a refused request would get."""
    try:
        check()
    except ApiError as error:
        return error.unready()
    return Answer({"status": "ok"})


def _route(path: str, content: bytes, kind: str) -> Route:
    async def file(request: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(path, file, methods=["GET"])
