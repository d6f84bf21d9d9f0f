"""The form of ``/v1/messages``: a message of blocks, or the API's events."""

from __future__ import annotations

import json
import secrets
from typing import Any

from edgedec.serve.errors import ApiError
from edgedec.serve.form import Chunk, Form
from edgedec.serve.parsing import ParsedRequest

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
        self._reason = "stop"
        self._figures: Chunk = {}

    def whole(self, answer: Chunk) -> Chunk:
        """Return a whole answer."""
        (choice,) = answer["choices"]
        self._reason, self._figures = choice["finish_reason"], answer["edgedec"]
        message, content = choice["message"], list[Chunk]()
        if thinking := message.get("reasoning_content"):
            content.append({"type": "thinking", "thinking": thinking, "signature": ""})
        if text := message.get("content"):
            content.append({"type": "text", "text": text})
        for one in message.get("tool_calls", ()):
            function = one["function"]
            content.append(
                {"type": "tool_use", "id": one["id"], "name": function["name"],
                 "input": _input(function["arguments"])}
            )  # fmt: skip
        usage, end = _usage(answer["usage"]), self._end()
        return {**self._message(content), **end, "usage": usage, "edgedec": self._figures}

    def begin(self) -> str:
        """Return the event before the first token."""
        usage = {"input_tokens": len(self.parsed.works[0].prompt), "output_tokens": 0}
        unknown = {"stop_reason": None, "stop_sequence": None}
        message = {**self._message([]), **unknown, "usage": usage}
        return _event("message_start", message=message)

    def chunk(self, chunk: Chunk) -> str:
        """Return the events of a round; those of its end wait for ``end``."""
        (choice,) = chunk["choices"]
        self._figures = chunk.get("edgedec", self._figures)
        self._reason = choice["finish_reason"] or self._reason
        delta, events = choice["delta"], ""
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
        last = {"delta": self._end(), "usage": _usage(usage["usage"]), "edgedec": self._figures}
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
        by = self._figures.get("stopped_by")
        reason = _REASONS[self._reason] if by is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": by}


def _input(arguments: str) -> Any:
    try:
        found = json.loads(arguments)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _usage(usage: Chunk) -> Chunk:
    """Return the tokens as Anthropic counts them: those of the cache apart."""
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }
