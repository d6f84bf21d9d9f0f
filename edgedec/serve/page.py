"""The page at ``/``, whose files all ship in the package."""

from __future__ import annotations

from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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


_FILES = _files()
PATHS = frozenset(_FILES)


def routes() -> list[Route]:
    """Return a route for each file."""
    return [_route(path, content, kind) for path, (content, kind) in _FILES.items()]


def _route(path: str, content: bytes, kind: str) -> Route:
    async def file(request: Request) -> Response:
        return Response(content, media_type=kind)

    return Route(path, file, methods=["GET"])
