"""The form of Ollama's answers: one JSON object, or a line for each round."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from time import perf_counter

from edgedec.serve.errors import ApiError
from edgedec.serve.form import Chunk, Form
from edgedec.serve.parsing import ParsedRequest

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
        self._reason = "stop"
        self._figures: Chunk = {}

    def whole(self, answer: Chunk) -> Chunk:
        """Return a whole answer."""
        (choice,) = answer["choices"]
        self._note(choice, answer)
        return {**self._content(choice.get("message", choice)), **self._last(answer["usage"])}

    def chunk(self, chunk: Chunk) -> str:
        """Return the line of a round; the last one waits for ``end``."""
        (choice,) = chunk["choices"]
        self._note(choice, chunk)
        part = choice.get("delta", choice)
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

    def _note(self, choice: Chunk, answer: Chunk) -> None:
        self._reason = choice["finish_reason"] or self._reason
        self._figures = answer.get("edgedec", self._figures)

    def _head(self) -> Chunk:
        return {"model": self.head["model"], "created_at": when(None)}

    def _content(self, part: Chunk) -> Chunk:
        message: Chunk = {"role": "assistant", "content": part.get("content") or ""}
        if calls := [_call(one["function"]) for one in part.get("tool_calls") or ()]:
            message["tool_calls"] = calls
        return {"message": message | _thinking(part)}

    def _last(self, usage: Chunk) -> Chunk:
        total_s = perf_counter() - self._began
        first_s = min(self._figures.get("ttft_s", 0.0), total_s)
        return {
            **self._head(),
            "done": True,
            "done_reason": "length" if self._reason == "length" else "stop",
            "total_duration": int((total_s + self.loading_s) * _S),
            "load_duration": int(self.loading_s * _S),
            "prompt_eval_count": usage["prompt_tokens"],
            "prompt_eval_duration": int(first_s * _S),
            "eval_count": usage["completion_tokens"],
            "eval_duration": int((total_s - first_s) * _S),
            "edgedec": self._figures,
        }


class GenerateForm(ChatForm):
    """An answer of ``/api/generate``, which may be a chat's or a completion's."""

    def _content(self, part: Chunk) -> Chunk:
        text = part.get("content") or part.get("text") or ""
        return {"response": text, **_thinking(part)}


def _thinking(part: Chunk) -> Chunk:
    return {"thinking": part[_THINKING]} if part.get(_THINKING) else {}


def _call(function: Chunk) -> Chunk:
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = {}
    return {"function": {"name": function["name"], "arguments": arguments}}


def _line(value: Chunk) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def when(seconds: float | None) -> str:
    """Return a time in ISO 8601; None is now."""
    now = datetime.now(timezone.utc) if seconds is None else None
    return (now or datetime.fromtimestamp(seconds or 0, timezone.utc)).isoformat()
