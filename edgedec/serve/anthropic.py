"""Anthropic's ``/v1/messages``: translated to a chat and back. Nothing is stored."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.serve import parsing
from edgedec.serve.body import Body
from edgedec.serve.calls import object_of
from edgedec.serve.errors import Answer, ApiError, refused
from edgedec.serve.form import Chunk, Dialect, Form, Router, absent, event
from edgedec.serve.models import name_of
from edgedec.serve.other_names import MOST_TOKENS, of_schema
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits

_ELSEWHERE = "use /v1/chat/completions"
# Fields of a chat that this API has under other names or not at all, by what to do.
_REFUSED = {
    "n": f"this route gives one text: {_ELSEWHERE}",
    "logprobs": _ELSEWHERE,
    "top_logprobs": _ELSEWHERE,
    "prompt": "send messages",
    "stop": "send stop_sequences",
    "response_format": "send output_config.format",
    "mcp_servers": "this server calls nothing: leave it out",
    "container": "this server runs nothing: leave it out",
}
_TRANSLATED = ("system", "stop_sequences", "thinking", "output_config", "messages", "tools",
               "tool_choice", "stream_options")  # fmt: skip
_THINKING = ("enabled", "disabled", "adaptive")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_TEXTS, _THOUGHTS = ("text",), ("thinking", "redacted_thinking")


def routes(router: Router) -> list[Route]:
    """Return the routes."""

    async def count(request: Request) -> Response:
        limits = router.models.settings.limits
        with router.models.visit() as visit:

            def use(fields: dict[str, Any]) -> ParsedRequest:
                return read(fields, visit.take(name_of(fields)).counting, limits)

            parsed = await router.read(request, visit, use, threaded=True)
        return Answer({"input_tokens": len(parsed.works[0].prompt)})

    return [
        router.texts("/v1/messages", Dialect(read, MessagesForm, body_of, templated=True)),
        router.route("/v1/messages/count_tokens", count, "POST", body=body_of),
        absent(router, "/v1/messages/{rest:path}", "this server has /v1/messages alone", body_of),
    ]


def read(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request; ApiError if a field is not as expected."""
    body = Body(fields)
    body.refuse(_REFUSED)
    chat = {name: value for name, value in fields.items() if name not in _TRANSLATED}
    chat["messages"] = _system(body.get("system")) + _messages(body.rows("messages"))
    chat["tools"] = [_tool(one, f"tools[{at}]") for at, one in enumerate(body.rows("tools") or ())]
    chat["tool_choice"] = _choice(body.part("tool_choice"))
    chat["stop"] = body.rows("stop_sequences")
    _read_thinking(body.part("thinking"), chat)
    if (output := body.part("output_config")) is not None:
        chat["reasoning_effort"] = output.get("effort")
        chat["response_format"] = _format(output.part("format"))
        output.end()
    if body.flag("stream"):
        chat["stream_options"] = {"include_usage": True}
    parsed = parsing.chat(chat, prompts, limits)
    parsed.ignored.extend(body.ignored)
    return parsed


def _read_thinking(asked: Body | None, chat: dict[str, Any]) -> None:
    """Add what a request says about thinking to the fields of a chat."""
    if asked is None:
        return
    kind, budget = asked.text("type", _THINKING), asked.whole("budget_tokens", 0, MOST_TOKENS)
    asked.end(("display",))
    if kind != "adaptive":
        chat["enable_thinking"] = kind == "enabled"
    if budget is not None and kind == "enabled":
        own = chat.get("edgedec")
        chat["edgedec"] = {"think_tokens": budget, **(own if isinstance(own, dict) else {})}


def _format(asked: Body | None) -> dict[str, Any] | None:
    if asked is None:
        return None
    asked.text("type", ("json_schema",))
    schema = asked.get("schema")
    asked.end()
    if not isinstance(schema, dict):
        raise refused("output_config.format.schema", "a JSON schema", schema)
    return of_schema(schema)


def _system(given: Any) -> list[dict[str, Any]]:
    if given in (None, "", []):
        return []
    return [{"role": "system", "content": _text(given, "system")}]


def _text(given: Any, where: str) -> str:
    if isinstance(given, str):
        return given
    return "".join(str(one["text"]) for one in _blocks(given, where, _TEXTS))


def _blocks(given: Any, where: str, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return blocks of these kinds, which have what they need."""
    expected = f"a text or blocks of the types {', '.join(kinds)}"
    if not isinstance(given, list):
        raise refused(where, expected, given)
    for one in given:
        kind = one.get("type") if isinstance(one, dict) else None
        if kind not in kinds:
            raise refused(where, expected, kind or one)
        if kind == "text" and not isinstance(one.get("text"), str):
            raise refused(where, "blocks with a text", one)
    return given


def _messages(given: list[Any] | None) -> list[dict[str, Any]]:
    """Return a conversation as the other route takes it; ``messages.read`` checks the rest."""
    found: list[dict[str, Any]] = []
    for place, one in enumerate(given or ()):
        where = f"messages[{place}]"
        role, content = (one.get("role"), one.get("content")) if isinstance(one, dict) else (0, 0)
        if role == "assistant":
            found.append(_answer(content, where))
        elif role == "user":
            found += _question(content, where)
        elif role == "system":
            found.append({"role": role, "content": _text(content, where)})
        else:
            raise refused(where, "a message of the role user, assistant or system", role or one)
    return found


def _question(content: Any, where: str) -> list[dict[str, Any]]:
    """Return a user's message as results of calls, and texts."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    found: list[dict[str, Any]] = []
    for block in _blocks(content, where, (*_TEXTS, "tool_result")):
        if block["type"] == "tool_result":
            text = _text(block.get("content", ""), f"{where}.content")
            text = f"Error: {text}" if block.get("is_error") is True else text
            key = block.get("tool_use_id")
            found.append({"role": "tool", "tool_call_id": key, "content": text})
        elif found and found[-1]["role"] == "user":
            found[-1]["content"] += block["text"]
        else:
            found.append({"role": "user", "content": block["text"]})
    return found


def _answer(content: Any, where: str) -> dict[str, Any]:
    """Return an assistant's message with its thinking and its calls."""
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    blocks = _blocks(content, where, (*_TEXTS, "tool_use", *_THOUGHTS))
    texts = [one["text"] for one in blocks if one["type"] == "text"]
    found: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    thoughts = [one.get("thinking") for one in blocks if one["type"] == "thinking"]
    if thoughts and all(isinstance(one, str) for one in thoughts):
        found["reasoning_content"] = "".join(map(str, thoughts))
    calls = [
        {
            "id": one.get("id"),
            "type": "function",
            "function": {"name": one.get("name"), "arguments": one.get("input", {})},
        }
        for one in blocks
        if one["type"] == "tool_use"
    ]
    return found | ({"tool_calls": calls} if calls else {})


def _tool(given: Any, where: str) -> dict[str, Any]:
    kind = given.get("type", "custom") if isinstance(given, dict) else None
    if kind != "custom" or "name" not in given:
        raise refused(where, "a tool of your own, with a name and an input_schema", kind or given)
    function = {"name": given["name"], "parameters": given.get("input_schema", {})}
    if (text := given.get("description")) is not None:
        function["description"] = text
    return {"type": "function", "function": function}


def _choice(asked: Body | None) -> Any:
    if asked is None:
        return None
    kind, name = asked.text("type", (*_CHOICES, "tool")), asked.text("name")
    asked.end(("disable_parallel_tool_use",))
    if kind == "tool":
        return {"type": "function", "function": {"name": name}}
    return _CHOICES[kind or "auto"]


_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error",
    503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def body_of(error: ApiError) -> Chunk:
    """Return an error as Anthropic writes it."""
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


class MessagesForm(Form):
    """An answer of ``/v1/messages``."""

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        super().__init__(parsed, head)
        self._id = f"msg_{secrets.token_hex(12)}"
        # The kind of the block that is open, and how many there were; its call's number.
        self._open, self._count, self._call = "", 0, -1

    def whole(self, answer: Chunk) -> Chunk:
        message, content = self.part(answer), list[Chunk]()
        if thinking := message.get("reasoning_content"):
            content.append({"type": "thinking", "thinking": thinking, "signature": ""})
        if text := message.get("content"):
            content.append({"type": "text", "text": text})
        for one in message.get("tool_calls", ()):
            function = one["function"]
            content.append(
                {"type": "tool_use", "id": one["id"], "name": function["name"],
                 "input": object_of(function["arguments"])}
            )  # fmt: skip
        usage, end = _usage(answer["usage"]), self._end()
        return {**self._message(content), **end, "usage": usage, "edgedec": self.figures}

    def begin(self) -> str:
        """Return the event before the first token."""
        usage = {"input_tokens": len(self.parsed.works[0].prompt), "output_tokens": 0}
        unknown = {"stop_reason": None, "stop_sequence": None}
        message = {**self._message([]), **unknown, "usage": usage}
        return _event("message_start", message=message)

    def chunk(self, chunk: Chunk) -> str:
        """Return the events of a round; those of its end wait for ``end``."""
        delta, events = self.part(chunk), ""
        if thinking := delta.get("reasoning_content"):
            events += self._begin("thinking", {"thinking": "", "signature": ""})
            events += self._delta("thinking_delta", thinking=thinking)
        if text := delta.get("content"):
            events += self._begin("text", {"text": ""})
            events += self._delta("text_delta", text=text)
        for call in delta.get("tool_calls", ()):
            if call["index"] != self._call:
                events += self._close()
                self._call = call["index"]
                named = {"id": call["id"], "name": call["function"]["name"], "input": {}}
                events += self._begin("tool_use", named)
            if arguments := call["function"]["arguments"]:
                events += self._delta("input_json_delta", partial_json=arguments)
        return events

    def end(self, usage: Chunk | None) -> str:
        """Return the events after the last token."""
        assert usage is not None, "read() asks for it"
        events = "" if self._count else self._begin("text", {"text": ""})
        last = {"delta": self._end(), "usage": _usage(usage["usage"]), "edgedec": self.figures}
        return events + self._close() + _event("message_delta", **last) + _event("message_stop")

    def failed(self, error: ApiError) -> str:
        """Return the event of a text that fails."""
        return _event("error", error=body_of(error)["error"])

    def _begin(self, kind: str, fields: Chunk) -> str:
        """Return the events that begin a block, unless one of its kind is open."""
        if self._open == kind:
            return ""
        closed = self._close()
        self._open, self._count = kind, self._count + 1
        block = {"type": kind, **fields}
        return closed + _event("content_block_start", index=self._count - 1, content_block=block)

    def _delta(self, kind: str, **fields: Any) -> str:
        delta = {"type": kind, **fields}
        return _event("content_block_delta", index=self._count - 1, delta=delta)

    def _close(self) -> str:
        kind, self._open = self._open, ""
        return _event("content_block_stop", index=self._count - 1) if kind else ""

    def _message(self, content: list[Chunk]) -> Chunk:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self.head["model"],
            "content": content,
        }

    def _end(self) -> Chunk:
        by = self.figures.get("stopped_by")
        reason = _REASONS[self.reason] if by is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": by}


def _event(kind: str, **fields: Any) -> str:
    return event({"type": kind, **fields}, kind)


def _usage(usage: Chunk) -> Chunk:
    """Return the tokens as Anthropic counts them: those of the cache apart."""
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }
