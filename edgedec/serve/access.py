"""The access log: one line for each request, written with ``edgedec serve -v``."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgedec._support.fields import one_line

_log = logging.getLogger("edgedec.access")


class AccessLog:
    """Logs client, method, path, status and seconds of each request, once it is answered.

    Queries and bodies are not logged: they may hold what nobody else should read.

    Args:
        app: what answers them.

    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        began, status = perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            _log.info(
                "%s %s %s %s %d %.3f s",
                datetime.now(timezone.utc).isoformat(timespec="seconds"),
                scope["client"][0] if scope.get("client") else "-",
                scope["method"],
                one_line(scope["path"]),
                status,
                perf_counter() - began,
            )
