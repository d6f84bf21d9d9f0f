"""The routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec._support.fields import one_line
from edgedec.serve import (
    anthropic,
    counting,
    errors,
    keyless,
    llama_server,
    ollama,
    parsing,
    responses,
)
from edgedec.serve.answers import EventStream, Writer, all_of, unless_left
from edgedec.serve.body import parsed
from edgedec.serve.counting import IGNORED, says_what
from edgedec.serve.entry import Entry
from edgedec.serve.errors import Answer, ApiError
from edgedec.serve.form import EMBEDDINGS, Chunk, Dialect, Handler, absent
from edgedec.serve.guard import OWNER, AccessLog, Guard
from edgedec.serve.metrics import CONTENT_TYPE
from edgedec.serve.model import ANSWERED_BY
from edgedec.serve.models import Models, NotLoaded, Visit, keep_of, name_of
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import SHORT
from edgedec.serve.turns import Ticket

T = TypeVar("T")
_JSON = "application/json"

# What curl sends of itself, or nothing.
_OF_CURL = ("application/x-www-form-urlencoded", "")


class Routes:
    """The routes of a server's models."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self._settings, self._limits = models.settings, models.settings.limits

    def app(self) -> Starlette:
        """Return them as an ASGI application."""
        routes = [
            self.route("/v1/models", self.cards, "GET"),
            self.route("/v1/models/{name:path}", self.card, "GET"),
            self.texts("/v1/completions", Dialect(parsing.completion)),
            self.texts("/v1/chat/completions", Dialect(parsing.chat, templated=True)),
            *counting.routes(self),
            self.route("/metrics", self.metrics, "GET"),
            self.route("/edgedec/status", self.status, "GET"),
            *responses.routes(self),
            *anthropic.routes(self),
            *llama_server.routes(self),
            *ollama.routes(self),
            absent(self, "/v1/embeddings", EMBEDDINGS),
            *keyless.routes(self),
        ]
        guards = [
            Middleware(AccessLog),
            Middleware(Guard, settings=self._settings),
        ]
        if self._settings.origins:
            guards.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=self._settings.origins,
                    allow_methods=["GET", "POST"],
                    allow_headers=["authorization", "content-type", "x-api-key", "x-session-id"],
                    expose_headers=[ANSWERED_BY, IGNORED],
                )
            )

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            await asyncio.to_thread(self.models.close)

        handlers: dict[Any, Any] = {404: _not_found, 405: _wrong_method, Exception: _failed}
        return Starlette(
            routes=routes, middleware=guards, exception_handlers=handlers, lifespan=lifespan
        )

    def route(
        self,
        path: str,
        handler: Handler,
        *methods: str,
        body: Callable[[ApiError], Chunk] = ApiError.body,
    ) -> Route:
        """Return a route that is counted, and whose errors have this body."""

        async def answered(request: Request) -> Response:
            status = 500
            try:
                response = await handler(request)
                status = response.status_code
                return response
            except ClientDisconnect:
                status = 499
                return Response(status_code=499)
            except Exception as error:
                # Not in a variable, which would keep error, traceback and the request's body.
                status = errors.of(error).status
                if status == 500:
                    raise
                return errors.of(error).response(body)
            finally:
                self.models.shared.metrics.answered(path, status)

        return Route(path, answered, methods=methods)

    def texts(self, path: str, dialect: Dialect) -> Route:
        """Return a route that answers with generated texts."""
        return self.route(path, partial(self._answer, dialect), "POST", body=dialect.body)

    # -- about the server ------------------------------------------------------------------------

    async def cards(self, request: Request) -> Response:
        cards = [self.models.card(one) for one in self.models.entries]
        return Answer({"object": "list", "data": cards})

    async def card(self, request: Request) -> Response:
        entry = self.models.find(request.path_params["name"], strict=True)
        card = self.models.card(entry)
        if entry.served is None:  # files are read one at a time
            card["edgedec"] |= await self.models.shared.reader.run(entry.facts)
        return Answer(card)

    async def metrics(self, request: Request) -> Response:
        page = self.models.shared.metrics.page()
        return Response(page, headers={"Content-Type": CONTENT_TYPE})

    async def status(self, request: Request) -> Response:
        return Answer(self.models.status())

    # -- texts -----------------------------------------------------------------------------------

    async def _answer(self, dialect: Dialect, request: Request) -> Response:
        with self.models.visit() as visit:
            # Templates take a moment: the other clients' tokens go on meanwhile.
            parsed, asked = await self.read(
                request, visit, partial(self._texts, dialect, visit), threaded=dialect.templated
            )
            entry, served = visit.entry, visit.served
            headers = {**_says_who(entry, asked), **says_what(parsed.ignored)}
            if parsed.answer is not None:
                return Answer(parsed.answer, headers=headers)
            assert entry is not None, "read() found it"
            assert served is not None, "read() waited for it"
            await served.compiler.prepare(parsed.works)
            writer = Writer(parsed, served.tokenizer, entry.offer.name)
            form = dialect.form(parsed, writer.head)
            form.loading_s = visit.waited_s
            ticket = Ticket(
                parsed.works,
                timeout_s=max(0.0, self._limits.text_s - visit.waited_s),
                most_unread=self._limits.unread_tokens if parsed.stream else None,
                owner=request.scope.get(OWNER, ""),
            )
            served.turns.submit(ticket)
        if not parsed.stream:
            return Answer(form.whole(writer.whole(await all_of(request, ticket))), headers=headers)
        try:
            first = await unless_left(request, ticket)
        except BaseException:
            ticket.leave()
            raise
        return EventStream(writer, form, ticket, first, headers)

    def _texts(
        self, dialect: Dialect, visit: Visit, fields: dict[str, Any]
    ) -> tuple[ParsedRequest, str]:
        """Return the texts of a request, and the name of the model that it asks for; "" if none.

        Raises:
            NotLoaded: its model is to be waited for first.
            ApiError: it is refused.

        """
        name = name_of(fields)
        keep_s = keep_of(fields) if self.models.several else None
        bare = dialect.bare(fields)
        if bare is not None:
            if keep_s == 0 and bare.answer is not None:
                bare.answer["done_reason"] = "unload"
            visit.entry = self.models.find(name)
            if keep_s != 0 or visit.entry.served is not None:
                visit.take(name, keep_s)
            return bare, name
        served = visit.take(name, keep_s)
        served.turns.check()  # before its prompt is read in vain
        found = dialect.read(fields, served.prompts, self._limits)
        for work in found.works:
            served.prompts.check(work.prompt)
        return found, name

    async def read(
        self,
        request: Request,
        visit: Visit,
        use: Callable[[dict[str, Any]], T],
        *,
        threaded: bool,
    ) -> T:
        """Return what becomes of a request's JSON, which must not be large or late.

        Another site's page can send any other type without asking the browser's leave. Ollama's
        examples for curl send none, so its routes take that of what is no page.

        Args:
            visit: its use of a model, which ``use`` takes; it is waited for where that must be.
            use: reads the JSON.
            threaded: whether it does so in another thread even if it is short.

        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = kind in _OF_CURL and request.url.path.startswith("/api/") and _of_curl(request)
        if kind != _JSON and not plain:
            raise ApiError(
                415,
                f"Content-Type: expected {_JSON}, got {one_line(kind) or 'none'}: send the header"
                f" Content-Type: {_JSON}",
            )
        bodies = self.models.shared.bodies
        raw = await bodies.receive(request)
        with bodies.counted(raw):
            while True:
                with suppress(NotLoaded):
                    return await self._used(raw, use, threaded=threaded)
                # It is parsed again then; the error would keep what it was parsed to.
                await self.models.wait(visit)

    async def _used(
        self, raw: bytearray, use: Callable[[dict[str, Any]], T], *, threaded: bool
    ) -> T:
        if len(raw) > SHORT:
            shared = self.models.shared
            return await shared.reader.run(partial(shared.read_long, raw, use), len(raw))
        if threaded:
            return await asyncio.to_thread(lambda: use(parsed(raw)))
        return use(parsed(raw))  # faster than starting another thread


def _says_who(entry: Entry | None, asked: str) -> dict[str, str]:
    """Return the header that names the model, for a request that asked for another one."""
    if entry is None or entry.known_as(asked):
        return {}
    return {ANSWERED_BY: entry.offer.name.encode("ascii", "backslashreplace").decode()}


def _of_curl(request: Request) -> bool:
    """Return whether a request has a body, and no browser says that a page sent it."""
    headers = request.headers
    empty = headers.get("content-length", "0") == "0"
    return not (empty or any(name in headers for name in ("origin", "referer", "sec-fetch-site")))


async def _not_found(request: Request, error: Exception) -> Response:
    return ApiError(
        404, f"{one_line(request.url.path)}: no such route", code="not_found"
    ).response()


async def _wrong_method(request: Request, error: Exception) -> Response:
    return ApiError(405, f"{one_line(request.method)}: not a method of this route").response()


async def _failed(request: Request, error: Exception) -> Response:
    return errors.of(error).response()
