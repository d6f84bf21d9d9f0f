"""Takes a route's path as clients write it: with a slash too many, or without ``/v1``."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

# llama.cpp's server has these as well.
_SHORT = {
    f"/{name}": f"/v1/{name}" for name in ("chat/completions", "completions", "models", "responses")
}


class Spelling:
    """Passes a request on with the usual path of its route.

    Args:
        app: what answers.

    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a connection's request."""
        if scope["type"] == "http" and (path := usual(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)


def usual(path: str) -> str:
    """Return a path with single slashes and none at its end, below ``/v1`` where its route is."""
    path = re.sub("/{2,}", "/", path)
    path = path if path == "/" else path.removesuffix("/")
    return _SHORT.get(path, path)
