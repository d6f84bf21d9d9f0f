"""Ollama's API, which editors look for first: translated to chats and completions, and back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec._support.fields import one_line
from edgedec._version import __version__
from edgedec.serve import absent, other_names, parsing
from edgedec.serve.body import Body
from edgedec.serve.errors import Answer, ApiError
from edgedec.serve.form import Chunk, Dialect, Router
from edgedec.serve.ollama_form import ChatForm, GenerateForm, body_of, when
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits

# The version of Ollama whose API these routes follow; editors demand a recent one.
FOLLOWS = "0.6.4"
# Fields of ``/api/generate`` that this server does not have, by what to do.
_ELSEWHERE = {
    "context": "send the conversation to /api/chat instead",
    "images": "this server reads text alone: leave it out",
    "template": "this server uses the model's own: leave it out, or send raw",
}
_EFFORTS = ("low", "medium", "high")
_ROUTES = (
    "of Ollama's API this server has /api/chat, /api/generate, /api/show, /api/tags, /api/ps and"
    " /api/version, with the one model that it was started with"
)
_NEVER = "9999-12-31T23:59:59Z"  # when its one model is dropped


def routes(router: Router) -> list[Route]:
    """Return the routes."""
    about = _About(router)
    return [
        router.texts("/api/chat", Dialect(read_chat, ChatForm, body_of, templated=True)),
        router.texts(
            "/api/generate", Dialect(read_generate, GenerateForm, body_of, templated=True)
        ),
        router.route("/api/tags", about.tags, "GET", body=body_of),
        router.route("/api/ps", about.loaded, "GET", body=body_of),
        router.route("/api/version", about.version, "GET", body=body_of),
        router.route("/api/show", about.show, "POST", body=body_of),
        absent.route(router, "/api/embed", absent.EMBEDDINGS, body_of),
        absent.route(router, "/api/embeddings", absent.EMBEDDINGS, body_of),
        absent.route(router, "/api/{rest:path}", _ROUTES, body_of),
    ]


class _About:
    """Answers to what Ollama's clients ask about models."""

    def __init__(self, router: Router) -> None:
        self._router, self._served = router, router.served
        self._shown: Chunk | None = None

    async def version(self, request: Request) -> Response:
        return Answer({"version": FOLLOWS, "edgedec": __version__})

    async def tags(self, request: Request) -> Response:
        return Answer({"models": [self._model()]})

    async def loaded(self, request: Request) -> Response:
        context = {"context_length": self._served.max_context}
        return Answer({"models": [{**self._model(), **context, "expires_at": _NEVER}]})

    def _model(self) -> Chunk:
        name = self._served.settings.name
        model = {"name": name, "model": name, "modified_at": when(self._served.created)}
        return {
            **model,
            "size": self._served.weight_bytes,
            "digest": "",
            "details": self._details(),
        }

    async def show(self, request: Request) -> Response:
        await self._router.read(request, self._check, threaded=False)
        # In a thread: the first time it renders the template.
        return Answer(await asyncio.to_thread(self._show))

    def _show(self) -> Chunk:
        """Return everything about the model; kept once all is known, since it stays the same."""
        if self._shown is not None:
            return self._shown
        served = self._served
        template, able = served.tokenizer.chat_template, self._abilities()
        shown = {
            "modified_at": when(served.created),
            "template": "" if template is None else template.source,
            "details": self._details(),
            "model_info": {
                "general.architecture": self._family,
                "general.basename": served.settings.name,
                "general.parameter_count": served.target.parameters,
                f"{self._family}.context_length": served.max_context,
            },
            "capabilities": [name for name, can in able.items() if can],
        }
        if None not in able.values():
            self._shown = shown
        return shown

    def _abilities(self) -> dict[str, bool | None]:
        """Return what the model can do; None where its template failed to tell this time."""
        prompts = self._served.prompts
        template = prompts.template
        return {
            "completion": True,
            "insert": prompts.infills,
            "tools": template is not None and template.takes_tools,
            "thinking": template is not None and template.switches_thinking,
        }

    def _check(self, fields: dict[str, Any]) -> None:
        body = Body(fields)
        name = body.text("model") or body.text("name")  # its former name
        body.flag("verbose")
        body.end(("system", "template", "options"))
        if self._served.settings.strict:
            self._served.check_name(name or "")

    @property
    def _family(self) -> str:
        return one_line(self._served.target.architecture) or "unknown"

    def _details(self) -> Chunk:
        target = self._served.target
        count = target.parameters
        return {
            "parent_model": "", "format": target.format, "family": self._family,
            "families": [self._family], "parameter_size": "" if count is None else _short(count),
            "quantization_level": one_line(target.weights),
        }  # fmt: skip


def _short(count: int) -> str:
    """Return a number as Ollama writes it: 134.52M, 1.5B."""
    for size, letter, digits in ((10**9, "B", 1), (10**6, "M", 2)):
        if count >= size:
            return f"{count / size:.{0 if count % size == 0 else digits}f}{letter}"
    return f"{count / 1000:.0f}K" if count >= 1000 else str(count)


def read_chat(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/api/chat``.

    Raises:
        ApiError: a field is not as expected.

    """
    body = Body(fields)
    talk, common = body.rows("messages"), _common(body)
    tools = body.rows("tools")
    body.end()
    if not talk:
        return _loaded(body, {"message": {"role": "assistant", "content": ""}})
    given = {"messages": [_message(one) for one in talk], "tools": tools or None, **common}
    return _translated(parsing.chat(given, prompts, limits), body)


def read_generate(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/api/generate``: a chat's first turn, or a plain text.

    Raises:
        ApiError: a field is not as expected.

    """
    body = Body(fields)
    prompt, suffix, system = body.text("prompt"), body.text("suffix"), body.text("system")
    plain = body.flag("raw") or bool(suffix) or prompts.template is None
    common = _common(body)
    for name, advice in _ELSEWHERE.items():
        if body.get(name):
            raise ApiError(400, f"{name}: {advice}", param=name)
    body.end()
    if not prompt and not suffix:
        return _loaded(body, {"response": ""})
    if not plain:
        talk = [("system", system)] if system else []
        messages = [{"role": role, "content": text} for role, text in [*talk, ("user", prompt)]]
        return _translated(parsing.chat({"messages": messages, **common}, prompts, limits), body)
    if system:
        raise ApiError(400, "system: a plain text has no system message: leave it out")
    if common.pop("reasoning_effort", None) or common.pop("enable_thinking", None):
        raise ApiError(400, "think: a plain text has no thinking: send it without raw or suffix")
    given = {
        "max_tokens": other_names.MOST_TOKENS,
        "prompt": prompt or "",
        "suffix": suffix,
        **common,
    }
    return _translated(parsing.completion(given, prompts, limits), body)


def _common(body: Body) -> dict[str, Any]:
    """Return the fields that both routes have, as OpenAI's API names them."""
    body.get("model")
    stream = body.flag("stream")
    found: dict[str, Any] = {"stream": stream is not False}
    if found["stream"]:
        found["stream_options"] = {"include_usage": True}
    if isinstance(think := body.get("think"), bool):
        found["enable_thinking"] = think
    elif think is not None:
        found["reasoning_effort"] = body.text("think", _EFFORTS)
    found["response_format"] = other_names.of_format(body)
    options = body.part("options")
    if options is not None:
        found |= other_names.of_options(options)
    return {name: value for name, value in found.items() if value is not None}


def _message(given: Any) -> Any:
    """Return a message; ``messages.read`` checks it."""
    if isinstance(given, dict) and given.get("images"):
        raise ApiError(400, "images: this server reads text alone: leave them out", param="images")
    return given


def _loaded(body: Body, empty: Chunk) -> ParsedRequest:
    """Return the answer to a request without a text, which asks for a model to be loaded."""
    model = body.get("model")
    named = {"model": one_line(model) if isinstance(model, str) else ""}
    ended = {"created_at": when(None), "done": True, "done_reason": "load"}
    answer = {**named, **empty, **ended}
    return ParsedRequest([], False, False, False, ignored=body.ignored, answer=answer)


def _translated(parsed: ParsedRequest, body: Body) -> ParsedRequest:
    parsed.ignored.extend(body.ignored)
    return replace(parsed, call_pieces=False)  # its arguments are objects
