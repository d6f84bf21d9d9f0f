"""OpenAI's ``/v1/responses``, for text: translated to a chat and back.

A request has the fields of ``/v1/chat/completions`` where the two APIs agree. Nothing is stored.
"""

from __future__ import annotations

import secrets
from time import time
from typing import Any

from starlette.routing import Route

from edgedec.serve import parsing
from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused
from edgedec.serve.form import Chunk, Dialect, Form, Router, absent, event
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
_TRANSLATED = (
    "input", "instructions", "max_output_tokens", "text", "reasoning", "stream_options",
)  # fmt: skip
_MOST_TOKENS = 1 << 24


def routes(router: Router) -> list[Route]:
    """Return the routes."""
    return [
        router.texts("/v1/responses", Dialect(read, ResponsesForm, templated=True)),
        absent(router, "/v1/responses/{rest:path}", _STORED),
    ]


def read(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request; ApiError if a field is not as expected."""
    body = Body(fields)
    chat = {name: value for name, value in fields.items() if value is not None}
    ignored = [name for name, values in _NEUTRAL.items() if _is_neutral(chat, name, values)]
    for name in ignored:
        del chat[name]
    for name in chat.keys() & {**_REFUSED, **_NEUTRAL}.keys():
        advice = _REFUSED.get(name, "leave it out")
        raise ApiError(400, f"{name}: {advice}", param=name)
    chat["messages"] = _messages(body)
    longest = body.limit("max_output_tokens", _MOST_TOKENS)
    if longest is not None:
        chat["max_completion_tokens"] = longest
    if (text := body.part("text")) is not None:
        chat["response_format"] = _format(text)
    if (reasoning := body.part("reasoning")) is not None:
        chat["reasoning_effort"] = reasoning.get("effort")
        reasoning.end(("summary", "generate_summary"))
    if (more := body.part("stream_options")) is not None:
        more.end(("include_obfuscation",))
    for name in _TRANSLATED:
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


class _Item:
    """A part of the output: the answer's message, or the thinking before it.

    Args:
        index: its place in the output.

    """

    def __init__(self, index: int, *, thinking: bool) -> None:
        self.index, self.thinking = index, thinking
        self.kind = "reasoning_text" if thinking else "output_text"
        self.id = f"{'rs' if thinking else 'msg'}_{secrets.token_hex(16)}"
        self.text = ""

    @property
    def place(self) -> Chunk:
        """The fields of events that say where a piece belongs."""
        return {"item_id": self.id, "output_index": self.index, "content_index": 0}

    def part(self) -> Chunk:
        """Return its content so far."""
        more: Chunk = {} if self.thinking else {"annotations": [], "logprobs": []}
        return {"type": self.kind, "text": self.text, **more}

    def whole(self, status: str) -> Chunk:
        """Return it as the API writes it."""
        kind: Chunk = {"type": "message", "role": "assistant"}
        if self.thinking:
            kind = {"type": "reasoning", "summary": []}
        content = [] if status == "in_progress" else [self.part()]
        return {"id": self.id, **kind, "status": status, "content": content}


class ResponsesForm(Form):
    """An answer of ``/v1/responses``."""

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        super().__init__(parsed, head)
        self._id = f"resp_{secrets.token_hex(16)}"
        self._items: list[_Item] = []
        self._count = 0

    def whole(self, answer: Chunk) -> Chunk:
        self._add(self.part(answer))
        if not self._items:
            self._begin_item(thinking=False)
        return self._response(self._status, answer["usage"])

    def begin(self) -> str:
        """Return the events before the first token."""
        response = self._response("in_progress", None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def chunk(self, chunk: Chunk) -> str:
        """Return the events of a round; those of its end wait for ``end``."""
        return self._add(self.part(chunk))

    def end(self, usage: Chunk | None) -> str:
        """Return the events after the last token."""
        assert usage is not None, "read() asks for it"
        events = "" if self._items else self._begin_item(thinking=False)
        events += self._end_item()
        last = self._response(self._status, usage["usage"])
        return events + self._event(f"response.{self._status}", response=last)

    def failed(self, error: ApiError) -> str:
        """Return the event of a text that fails."""
        response = self._response("failed", None)
        response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response=response)

    @property
    def _status(self) -> str:
        return "incomplete" if self.reason == "length" else "completed"

    def _add(self, part: Chunk) -> str:
        """Add the thinking and the text of a message or of a piece of one; return the events."""
        events = ""
        for name, thinking in (("reasoning_content", True), ("content", False)):
            if not (piece := part.get(name)):
                continue
            if not self._items or self._items[-1].thinking != thinking:
                events += self._end_item() + self._begin_item(thinking=thinking)
            item = self._items[-1]
            item.text += piece
            more: Chunk = {} if thinking else {"logprobs": []}
            events += self._event(f"response.{item.kind}.delta", **item.place, delta=piece, **more)
        return events

    def _begin_item(self, *, thinking: bool) -> str:
        item = _Item(len(self._items), thinking=thinking)
        self._items.append(item)
        added = {"output_index": item.index, "item": item.whole("in_progress")}
        return self._event("response.output_item.added", **added) + self._event(
            "response.content_part.added", **item.place, part=item.part()
        )

    def _end_item(self) -> str:
        if not self._items:
            return ""
        item = self._items[-1]
        more: Chunk = {} if item.thinking else {"logprobs": []}
        done = {"output_index": item.index, "item": item.whole(self._status)}
        return (
            self._event(f"response.{item.kind}.done", **item.place, text=item.text, **more)
            + self._event("response.content_part.done", **item.place, part=item.part())
            + self._event("response.output_item.done", **done)
        )

    def _event(self, kind: str, **fields: Any) -> str:
        data = {"type": kind, "sequence_number": self._count, **fields}
        self._count += 1
        return event(data, kind)

    def _response(self, status: str, usage: Chunk | None) -> Chunk:
        options = self.parsed.works[0].options
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        done = status in ("completed", "incomplete")
        return {
            "id": self._id,
            "object": "response",
            "created_at": self.head["created"],
            "completed_at": int(time()) if done else None,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self.head["model"],
            "output": [item.whole(status) for item in self._items] if done else [],
            "temperature": options.sampling.temperature,
            "top_p": options.sampling.top_p,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "store": False,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
            **({"edgedec": self.figures} if done else {}),
        }


def _usage(usage: Chunk) -> Chunk:
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    thinking = usage["completion_tokens_details"]["reasoning_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": thinking},
        "total_tokens": usage["total_tokens"],
    }
