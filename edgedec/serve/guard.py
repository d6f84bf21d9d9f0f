"""Middleware of every route: access control, headers that restrict pages, and the access log."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from collections.abc import Collection
from datetime import datetime, timezone
from time import perf_counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgedec._support.fields import one_line
from edgedec.serve import keyless
from edgedec.serve.errors import ApiError
from edgedec.serve.settings import Settings

# The key of a scope that says which client's request it is.
OWNER = "edgedec.owner"
# RFC 9112, section 3.2: nothing but a name or an address, and a port.
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d*)?", re.ASCII)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src"
        " data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests under foreign names and from foreign pages, and those without a key.

    A page of another site can have a browser call this machine under a name of its own (DNS
    rebinding), so names that are not listed are refused; an address cannot be rebound.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._hosts = {"localhost", settings.host.lower(), *map(str.lower, settings.hosts)}
        self._origins = settings.origins
        self._keys = [key.encode() for key in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (path := usual(scope["path"])) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}

        async def locked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        try:
            self._check(scope)
        except ApiError as error:
            await error.response()(scope, receive, locked)
            return
        await self._app(scope, receive, locked)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not _known(_name(host), self._hosts):
            raise ApiError(
                421,
                f"Host {one_line(host)}: this server does not go by this name: start it with"
                " --allow-host",
                code="unknown_host",
            )
        origin = headers.get("origin")
        own = {f"http://{host}", f"https://{host}"}
        if origin is not None and origin not in own and origin not in self._origins:
            raise ApiError(
                403,
                f"pages of {one_line(origin)} may not call this server: start it with"
                " --allow-origin",
                code="unknown_origin",
            )
        preflight = scope["method"] == "OPTIONS" and origin is not None
        if self._keys and scope["path"] not in keyless.PATHS and not preflight:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if not kind:  # as Anthropic's clients send it
                kind, given = "bearer", headers.get("x-api-key", "")
            sent = given.strip().encode("utf-8", "replace")
            right = [hmac.compare_digest(sent, key) for key in self._keys]  # takes as long for each
            if kind.lower() != "bearer" or not any(right):
                raise ApiError(
                    401,
                    "this server demands its key: send Authorization: Bearer KEY",
                    kind="authentication_error",
                    code="invalid_api_key",
                )
            scope[OWNER] = f"key {right.index(True) + 1}"


def _name(host: str) -> str:
    """Return the name or address of a Host header, without its port; "" if it is none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found[1].strip("[]").lower()


def _known(name: str, hosts: Collection[str]) -> bool:
    if name in hosts:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


_log = logging.getLogger("edgedec.access")


class AccessLog:
    """Logs client, method, path, status and seconds of each request, once it is answered.

    Queries and bodies are not logged: they may hold what nobody else should read.
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


# llama.cpp's server has these as well.
_SHORT = {
    f"/{name}": f"/v1/{name}" for name in ("chat/completions", "completions", "models", "responses")
}


def usual(path: str) -> str:
    """Return a path with single slashes and none at its end, below ``/v1`` where its route is."""
    path = re.sub("/{2,}", "/", path)
    path = path if path == "/" else path.removesuffix("/")
    return _SHORT.get(path, path)
