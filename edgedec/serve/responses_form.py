"""The form of ``/v1/responses``: a whole answer, or the API's typed events."""

from __future__ import annotations

import json
import secrets
from time import time
from typing import Any

from edgedec.serve.errors import ApiError
from edgedec.serve.form import Chunk, Form
from edgedec.serve.parsing import ParsedRequest


class _Item:
    """A part of the output: the answer's message, or the thinking before it.

    Args:
        index: its place in the output.
        thinking: which of the two it is.

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
        self._count, self._reason = 0, "stop"
        self._figures: Chunk = {}

    def whole(self, answer: Chunk) -> Chunk:
        """Return a whole answer."""
        (choice,) = answer["choices"]
        self._reason, self._figures = choice["finish_reason"], answer["edgedec"]
        self._add(choice["message"])
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
        (choice,) = chunk["choices"]
        self._figures = chunk.get("edgedec", self._figures)
        self._reason = choice["finish_reason"] or self._reason
        return self._add(choice["delta"])

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
        return "incomplete" if self._reason == "length" else "completed"

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
        return f"event: {kind}\ndata: {json.dumps(data)}\n\n"

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
            **({"edgedec": self._figures} if done else {}),
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
