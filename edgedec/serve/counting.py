"""Routes from text to tokens and back: ``/tokenize``, ``/detokenize`` and ``/apply-template``.

They have the fields of llama.cpp's server; conversations are those of ``/v1/chat/completions``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec.generation.options import GenerateOptions
from edgedec.generation.prompts import template_variables
from edgedec.serve import messages
from edgedec.serve.body import Body
from edgedec.serve.errors import Answer, ApiError, refused
from edgedec.serve.form import Chunk, Router
from edgedec.serve.messages import Tools
from edgedec.serve.model import Served
from edgedec.serve.models import Visit, name_of
from edgedec.serve.prompts import Prompts

IGNORED = "X-Edgedec-Ignored"
Made = tuple[Chunk, list[str]]


def routes(router: Router) -> list[Route]:
    """Return the routes."""

    def answered(make: Callable[[Served, Body], Chunk]) -> Callable[[Request], Any]:
        async def handler(request: Request) -> Response:
            with router.models.visit() as visit:
                use = partial(_made, make, visit)
                answer, ignored = await router.read(request, visit, use, threaded=True)
            return Answer(answer, headers=says_what(ignored))

        return handler

    makers = {"/tokenize": _tokens, "/detokenize": _text, "/apply-template": _rendered}
    return [router.route(path, answered(make), "POST") for path, make in makers.items()]


def says_what(ignored: list[str]) -> dict[str, str]:
    """Return the header that lists fields without an effect, if there are any."""
    return {IGNORED: ", ".join(ignored)} if ignored else {}


def _made(make: Callable[[Served, Body], Chunk], visit: Visit, fields: dict[str, Any]) -> Made:
    served, body = visit.take(name_of(fields)), Body(fields)
    body.get("model")
    return make(served, body), body.ignored


def _tokens(served: Served, body: Body) -> Chunk:
    """Return the tokens of ``prompt``, of ``content``, or of ``messages``.

    A prompt is read as ``/v1/completions`` reads it. ``content`` is llama.cpp's name of a text
    without the tokens that stand around a prompt, unless ``add_special`` asks for them.
    """
    counting = served.counting
    prompt, content, pieces = body.text("prompt"), body.text("content"), body.flag("with_pieces")
    special = body.flag("add_special")
    if body.flag("parse_special") is False:
        raise ApiError(400, "parse_special: names of special tokens are those tokens here: leave"
                       " it out", param="parse_special")  # fmt: skip
    given = [one is not None for one in (prompt, content, body.get("messages"))]
    if sum(given) != 1:
        raise ApiError(400, "expected prompt, a text, or messages", param="prompt")
    if given[2]:
        text, special = _conversation(counting, body), False
    else:
        text = prompt if prompt is not None else content or ""
        special = prompt is not None if special is None else special
    body.end()
    tokens = counting.encode(text, add_special_tokens=bool(special))
    spelt: list[Any] = tokens
    if pieces:
        spelt = [{"id": one, "piece": _piece(served.tokenizer.bytes_of(one))} for one in tokens]
    return {"tokens": spelt, "count": len(tokens), "max_context": served.max_context}


def _piece(spelling: bytes) -> str | list[int]:
    """Return a token as llama.cpp's server writes it: its text, or bytes that are none."""
    try:
        return spelling.decode("utf-8")
    except UnicodeDecodeError:
        return list(spelling)


def _text(served: Served, body: Body) -> Chunk:
    tokens = body.get("tokens")
    body.end()
    if not isinstance(tokens, list) or not all(type(one) is int for one in tokens):
        raise refused("tokens", "a list of token ids", tokens)
    return {"content": served.counting.decode(tokens, "tokens")}


def _rendered(served: Served, body: Body) -> Chunk:
    """Return the text that ``messages`` become."""
    text = _conversation(served.counting, body)
    body.end()
    return {"prompt": text}


def _conversation(prompts: Prompts, body: Body) -> str:
    """Return the text of a conversation, with the fields of a chat that shape it."""
    variables, think = messages.read_thinking(body)
    talk, ending = messages.read(body.get("messages")), messages.ending(body)
    variables |= messages.documents(body)
    tools = Tools.read(body)
    variables |= template_variables(prompts.tokenizer, GenerateOptions(think=think))
    return prompts.tokenizer.render(talk, tools.given if tools else None, variables, **ending)
