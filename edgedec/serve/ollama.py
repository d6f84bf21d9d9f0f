"""Ollama's API, which editors look for first: translated to chats and completions, and back."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from time import perf_counter, time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec._support.fields import one_line
from edgedec._version import __version__
from edgedec.errors import EdgedecError
from edgedec.loading.sources import Source
from edgedec.serve import other_names, parsing
from edgedec.serve.body import Body
from edgedec.serve.calls import object_of
from edgedec.serve.entry import Entry
from edgedec.serve.errors import Answer, ApiError
from edgedec.serve.form import EMBEDDINGS, Chunk, Dialect, Form, Router, absent
from edgedec.serve.keeping import FOR_EVER
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts, infill_marks
from edgedec.serve.settings import Limits
from edgedec.text.tokenizer import Tokenizer

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
    " /api/version, with the models that it was started with"
)
_NEVER = "9999-12-31T23:59:59Z"  # when a model is dropped that stays


def routes(router: Router) -> list[Route]:
    """Return the routes."""
    about = _About(router)
    return [
        router.texts(
            "/api/chat", Dialect(read_chat, ChatForm, body_of, templated=True, bare=bare_chat)
        ),
        router.texts(
            "/api/generate",
            Dialect(read_generate, GenerateForm, body_of, templated=True, bare=bare_generate),
        ),
        router.route("/api/tags", about.tags, "GET", body=body_of),
        router.route("/api/ps", about.loaded, "GET", body=body_of),
        router.route("/api/version", about.version, "GET", body=body_of),
        router.route("/api/show", about.show, "POST", body=body_of),
        absent(router, "/api/embed", EMBEDDINGS, body_of),
        absent(router, "/api/embeddings", EMBEDDINGS, body_of),
        absent(router, "/api/{rest:path}", _ROUTES, body_of),
    ]


class _About:
    """Answers to what Ollama's clients ask about models."""

    def __init__(self, router: Router) -> None:
        self._router, self._models = router, router.models

    async def version(self, request: Request) -> Response:
        return Answer({"version": FOLLOWS, "edgedec": __version__})

    async def tags(self, request: Request) -> Response:
        # Those that are not loaded are read from files: each once, and one at a time.
        found = [
            self._model(one)
            if one.known
            else await self._models.shared.reader.run(partial(self._model, one))
            for one in self._models.entries
        ]
        return Answer({"models": found})

    async def loaded(self, request: Request) -> Response:
        now = asyncio.get_running_loop().time()
        found = []
        for one in self._models.entries:
            if (served := one.served) is not None:
                model = self._model(one)
                found.append({
                    **model, "size": max(model["size"], one.held),
                    "context_length": served.max_context, "expires_at": _expires(one, now),
                })  # fmt: skip
        return Answer({"models": found})

    def _model(self, entry: Entry) -> Chunk:
        name = entry.offer.name
        size, details = 0, Chunk()
        with suppress(EdgedecError, OSError):  # a request for its text says what is wrong
            size, details = entry.file_bytes(), _details(entry.source())
        when_added = when(self._models.created)
        return {
            "name": name, "model": name, "modified_at": when_added, "size": size, "digest": "",
            "details": details,
        }  # fmt: skip

    async def show(self, request: Request) -> Response:
        with self._models.visit() as visit:
            entry = await self._router.read(request, visit, self._named, threaded=False)
            # In a thread: the first time it renders the template.
            if entry.served is None:
                return Answer(await self._models.shared.reader.run(partial(self._show, entry)))
            return Answer(await asyncio.to_thread(self._show, entry))

    def _named(self, fields: dict[str, Any]) -> Entry:
        body = Body(fields)
        name = body.text("model") or body.text("name")  # its former name
        body.flag("verbose")
        body.end(("system", "template", "options"))
        return self._models.find(name or "")

    def _show(self, entry: Entry) -> Chunk:
        """Return everything about a model; kept once all is known, since it stays the same."""
        if entry.shown is not None:
            return entry.shown
        served, source = entry.served, entry.source()
        tokenizer = source.read_tokenizer() if served is None else served.tokenizer
        context = source.max_context if served is None else served.max_context
        template, able = tokenizer.chat_template, _abilities(tokenizer)
        family = _family(source)
        shown = {
            "modified_at": when(self._models.created),
            "template": "" if template is None else template.source,
            "details": _details(source),
            "model_info": {
                "general.architecture": family,
                "general.basename": entry.offer.name,
                "general.parameter_count": source.parameters,
                f"{family}.context_length": context,
            },
            "capabilities": [name for name, can in able.items() if can],
        }
        if None not in able.values() and served is entry.served:
            entry.shown = shown
        return shown


def _abilities(tokenizer: Tokenizer) -> dict[str, bool | None]:
    """Return what a model can do; None where its template failed to tell this time."""
    template = tokenizer.chat_template
    return {
        "completion": True,
        "insert": infill_marks(tokenizer) is not None,
        "tools": template is not None and template.takes_tools,
        "thinking": template is not None and template.switches_thinking,
    }


def _family(source: Source) -> str:
    return one_line(source.architecture) or "unknown"


def _details(source: Source) -> Chunk:
    count, family = source.parameters, _family(source)
    return {
        "parent_model": "", "format": source.format, "family": family, "families": [family],
        "parameter_size": "" if count is None else _short(count),
        "quantization_level": one_line(source.weights),
    }  # fmt: skip


def _expires(entry: Entry, now: float) -> str:
    """Return when a loaded model is dropped if nothing more asks for it."""
    if entry.stays or entry.keep_s == FOR_EVER:
        return _NEVER
    left_s = entry.until - now if entry.timer is not None else entry.keep_s
    return when(time() + max(0.0, left_s))


def _short(count: int) -> str:
    """Return a number as Ollama writes it: 134.52M, 1.5B."""
    for size, letter, digits in ((10**9, "B", 1), (10**6, "M", 2)):
        if count >= size:
            return f"{count / size:.{0 if count % size == 0 else digits}f}{letter}"
    return f"{count / 1000:.0f}K" if count >= 1000 else str(count)


def bare_chat(fields: dict[str, Any]) -> ParsedRequest | None:
    """Return the answer to a request of ``/api/chat`` without messages; None if it has some."""
    if fields.get("messages"):
        return None
    return _loaded(_chat(fields)[0], {"message": {"role": "assistant", "content": ""}})


def _chat(fields: dict[str, Any]) -> tuple[Body, list[Any], dict[str, Any], list[Any] | None]:
    body = Body(fields)
    talk, common = body.rows("messages"), _common(body)
    tools = body.rows("tools")
    body.end()
    return body, talk or [], common, tools


def read_chat(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/api/chat``; ApiError if a field is not as expected."""
    body, talk, common, tools = _chat(fields)
    given = {"messages": [_message(one) for one in talk], "tools": tools or None, **common}
    return _translated(parsing.chat(given, prompts, limits), body)


def bare_generate(fields: dict[str, Any]) -> ParsedRequest | None:
    """Return the answer to a request of ``/api/generate`` without a text; None if it has one."""
    if fields.get("prompt") or fields.get("suffix"):
        return None
    return _loaded(_text(fields)[0], {"response": ""})


def _text(fields: dict[str, Any]) -> tuple[Body, str, str | None, dict[str, Any]]:
    body = Body(fields)
    prompt, suffix = body.text("prompt"), body.text("suffix")
    body.text("system"), body.flag("raw")
    common = _common(body)
    body.refuse(_ELSEWHERE)
    body.end()
    return body, prompt or "", suffix, common


def read_generate(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/api/generate``: a chat's first turn, or a plain text."""
    body, prompt, suffix, common = _text(fields)
    system = body.text("system")
    if not (body.flag("raw") or suffix or prompts.template is None):
        talk = [("system", system)] if system else []
        messages = [{"role": role, "content": text} for role, text in [*talk, ("user", prompt)]]
        return _translated(parsing.chat({"messages": messages, **common}, prompts, limits), body)
    if system:
        raise ApiError(400, "system: a plain text has no system message: leave it out")
    if common.pop("reasoning_effort", None) or common.pop("enable_thinking", None):
        raise ApiError(400, "think: a plain text has no thinking: send it without raw or suffix")
    given = {
        "max_tokens": other_names.MOST_TOKENS,
        "prompt": prompt,
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


_S = 1_000_000_000  # nanoseconds
_THINKING = "reasoning_content"


def body_of(error: ApiError) -> Chunk:
    """Return an error as Ollama writes it."""
    return {"error": error.message}


class ChatForm(Form):
    """An answer of ``/api/chat``: one object for each round, a line each, or one in all."""

    media_type = "application/x-ndjson"

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        super().__init__(parsed, head)
        self._began = perf_counter()

    def whole(self, answer: Chunk) -> Chunk:
        return {**self._content(self.part(answer)), **self._last(answer["usage"])}

    def chunk(self, chunk: Chunk) -> str:
        """Return the line of a round; the last one waits for ``end``."""
        part = self.part(chunk)
        if not any(part.get(name) for name in ("content", "text", "tool_calls", _THINKING)):
            return ""
        return _line({**self._head(), **self._content(part), "done": False})

    def end(self, usage: Chunk | None) -> str:
        """Return the last line, with the figures."""
        assert usage is not None, "_common() asks for it"
        return _line({**self._content({}), **self._last(usage["usage"])})

    def failed(self, error: ApiError) -> str:
        """Return the line that ends a text that fails."""
        return _line(body_of(error))

    def _head(self) -> Chunk:
        return {"model": self.head["model"], "created_at": when(None)}

    def _content(self, part: Chunk) -> Chunk:
        message: Chunk = {"role": "assistant", "content": part.get("content") or ""}
        if calls := [_call(one["function"]) for one in part.get("tool_calls") or ()]:
            message["tool_calls"] = calls
        return {"message": message | _thinking(part)}

    def _last(self, usage: Chunk) -> Chunk:
        total_s = perf_counter() - self._began
        first_s = min(self.figures.get("ttft_s", 0.0), total_s)
        return {
            **self._head(),
            "done": True,
            "done_reason": "length" if self.reason == "length" else "stop",
            "total_duration": int((total_s + self.loading_s) * _S),
            "load_duration": int(self.loading_s * _S),
            "prompt_eval_count": usage["prompt_tokens"],
            "prompt_eval_duration": int(first_s * _S),
            "eval_count": usage["completion_tokens"],
            "eval_duration": int((total_s - first_s) * _S),
            "edgedec": self.figures,
        }


class GenerateForm(ChatForm):
    """An answer of ``/api/generate``, which may be a chat's or a completion's."""

    def _content(self, part: Chunk) -> Chunk:
        text = part.get("content") or part.get("text") or ""
        return {"response": text, **_thinking(part)}


def _thinking(part: Chunk) -> Chunk:
    return {"thinking": part[_THINKING]} if part.get(_THINKING) else {}


def _call(function: Chunk) -> Chunk:
    named = {"name": function["name"], "arguments": object_of(function["arguments"])}
    return {"function": named}


def _line(value: Chunk) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def when(seconds: float | None) -> str:
    """Return a time in ISO 8601; None is now."""
    now = datetime.now(timezone.utc) if seconds is None else None
    return (now or datetime.fromtimestamp(seconds or 0, timezone.utc)).isoformat()
