"""The page at ``/``, whose files all ship in the package."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
}


def routes() -> list[Route]:
    """Return a route for each file."""
    return [_route(path, name, kind) for path, (name, kind) in _FILES.items()]


def _route(path: str, name: str, kind: str) -> Route:
    content = resources.files("edgedec.serve").joinpath("static").joinpath(name).read_bytes()

    async def file(request: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(path, file, methods=["GET"])
