"""OpenAI's ``/v1/responses``, for text: translated to a chat and back.

A request has the fields of ``/v1/chat/completions`` where the two APIs agree. Nothing is stored.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from edgedec.serve import absent, parsing
from edgedec.serve.body import Body
from edgedec.serve.errors import ApiError, refused
from edgedec.serve.form import Dialect, Router
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.responses_form import ResponsesForm
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
        absent.route(router, "/v1/responses/{rest:path}", _STORED),
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
