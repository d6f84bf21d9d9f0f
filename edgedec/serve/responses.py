"""OpenAI's ``/v1/responses``, for text: translated to a chat and back.

A request has the fields of ``/v1/chat/completions`` where the two APIs agree. Nothing is stored.
"""

from __future__ import annotations

import json
import secrets
from time import time
from typing import Any

from starlette.routing import Route

from edgedec.serve import absent, parsing
from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused
from edgedec.serve.form import Chunk, Dialect, Form, Server
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits

_STORED = "this server stores no answers: send the whole conversation as input"
# Fields that would make it another answer than a text, by what to do instead.
_REFUSED = {
    "previous_response_id": _STORED,
    "conversation": _STORED,
    "prompt": "this server stores no prompts: send input",
    "messages": "send input, or use /v1/chat/completions",
    "tools": "this route gives text alone: use /v1/chat/completions",
    "n": "this route gives one text: use /v1/chat/completions",
    "logprobs": "use /v1/chat/completions",
    "top_logprobs": "use /v1/chat/completions",
    "max_tokens": "send max_output_tokens",
    "max_completion_tokens": "send max_output_tokens",
    "response_format": "send text.format",
}
# Values at which such fields, and others of this API alone, change nothing; None is any.
_NEUTRAL: dict[str, tuple[Any, ...] | None] = {
    "background": (False,),
    "include": None,
    "max_tool_calls": None,
    "n": (1,),
    "tool_choice": ("auto", "none"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
_MOST_TOKENS = 1 << 24


def routes(server: Server) -> list[Route]:
    """Return the routes."""
    return [
        server.texts("/v1/responses", Dialect(read, ResponsesForm, templated=True)),
        absent.route(server, "/v1/responses/{rest:path}", _STORED),
    ]


def read(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request.

    Raises:
        ApiError: a field is not as expected.

    """
    body = Body(fields)
    chat = {name: value for name, value in fields.items() if value is not None}
    ignored = [name for name, values in _NEUTRAL.items() if _is_neutral(chat, name, values)]
    for name in ignored:
        del chat[name]
    for name in chat.keys() & {**_REFUSED, **_NEUTRAL}.keys():
        advice = _REFUSED.get(name, "leave it out")
        raise ApiError(400, f"{name}: {advice}", param=name)
    chat["messages"] = _messages(body)
    longest = body.whole("max_output_tokens", 1, _MOST_TOKENS)
    if longest is not None:
        chat["max_completion_tokens"] = longest
    if (text := body.part("text")) is not None:
        chat["response_format"] = _format(text)
    if (more := body.part("stream_options")) is not None:
        more.end(("include_obfuscation",))
    for name in ("input", "instructions", "max_output_tokens", "text", "stream_options"):
        chat.pop(name, None)
    if body.flag("stream"):
        chat["stream_options"] = {"include_usage": True}
    parsed = parsing.chat(chat, prompts, limits)
    parsed.ignored.extend(ignored + body.ignored)
    return parsed


def _is_neutral(chat: dict[str, Any], name: str, values: tuple[Any, ...] | None) -> bool:
    return name in chat and (values is None or chat[name] in values)


def _messages(body: Body) -> list[Any]:
    """Return a conversation as the other route takes it; ``messages.read`` checks the rest."""
    given, instructions = body.get("input"), body.text("instructions")
    found = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise refused("input", "a text or a list of messages", given)
    for place, one in enumerate(given):
        kind = one.get("type", "message") if isinstance(one, dict) else None
        if kind == "reasoning":  # of an earlier answer; no template reads it in this form
            continue
        if kind != "message":
            raise refused(f"input[{place}]", "a message with text", kind)
        found.append({"role": one.get("role"), "content": one.get("content")})
    return found


def _format(text: Body) -> dict[str, Any] | None:
    """Return ``text.format`` as ``response_format``, whose schema is one level deeper."""
    asked = text.part("format")
    text.end()
    if asked is None:
        return None
    kind, schema = asked.get("type"), asked.get("schema")
    for name in ("name", "description", "strict"):
        asked.get(name)
    asked.end()
    return {"type": kind, **({} if schema is None else {"json_schema": {"schema": schema}})}


class ResponsesForm(Form):
    """An answer of ``/v1/responses``, whole or as its typed events."""

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        super().__init__(parsed, head)
        self._ids = {kind: f"{kind}_{secrets.token_hex(16)}" for kind in ("resp", "msg")}
        self._place = {"item_id": self._ids["msg"], "output_index": 0, "content_index": 0}
        self._count = 0
        self._text, self._reason = "", "stop"
        self._figures: Chunk = {}

    def whole(self, answer: Chunk) -> Chunk:
        """Return a whole answer."""
        (choice,) = answer["choices"]
        self._text, self._reason = choice["message"]["content"] or "", choice["finish_reason"]
        self._figures = answer["edgedec"]
        return self._response(self._status, answer["usage"])

    def begin(self) -> str:
        """Return the events before the first token."""
        response = self._response("in_progress", None)
        return (
            self._event("response.created", response=response)
            + self._event("response.in_progress", response=response)
            + self._event(
                "response.output_item.added", output_index=0, item=self._item("in_progress", [])
            )
            + self._event("response.content_part.added", **self._place, part=_part(""))
        )

    def chunk(self, chunk: Chunk) -> str:
        """Return a piece of the text; the end of the text waits for ``end``."""
        (choice,) = chunk["choices"]
        self._figures = chunk.get("edgedec", self._figures)
        self._reason = choice["finish_reason"] or self._reason
        piece = choice["delta"].get("content")
        if not piece:
            return ""
        self._text += piece
        return self._event("response.output_text.delta", **self._place, delta=piece, logprobs=[])

    def end(self, usage: Chunk | None) -> str:
        """Return the events after the last token."""
        assert usage is not None, "read() asks for it"
        item = self._item(self._status, [_part(self._text)])
        return (
            self._event("response.output_text.done", **self._place, text=self._text, logprobs=[])
            + self._event("response.content_part.done", **self._place, part=_part(self._text))
            + self._event("response.output_item.done", output_index=0, item=item)
            + self._event(
                f"response.{self._status}", response=self._response(self._status, usage["usage"])
            )
        )

    def failed(self, error: ApiError) -> str:
        """Return the event of a text that fails."""
        response = self._response("failed", None)
        response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response=response)

    @property
    def _status(self) -> str:
        return "incomplete" if self._reason == "length" else "completed"

    def _event(self, kind: str, **fields: Any) -> str:
        data = {"type": kind, "sequence_number": self._count, **fields}
        self._count += 1
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n"

    def _item(self, status: str, content: list[Chunk]) -> Chunk:
        named = {"id": self._ids["msg"], "type": "message", "role": "assistant"}
        return {**named, "status": status, "content": content}

    def _response(self, status: str, usage: Chunk | None) -> Chunk:
        options = self.parsed.works[0].options
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        done = status in ("completed", "incomplete")
        return {
            "id": self._ids["resp"],
            "object": "response",
            "created_at": self.head["created"],
            "completed_at": int(time()) if done else None,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self.head["model"],
            "output": [self._item(status, [_part(self._text)])] if done else [],
            "temperature": options.sampling.temperature,
            "top_p": options.sampling.top_p,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "store": False,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
            **({"edgedec": self._figures} if done else {}),
        }


def _part(text: str) -> Chunk:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Chunk) -> Chunk:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
