"""``/completion`` and ``/props`` of llama.cpp's server, which its clients call."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgedec._version import __version__
from edgedec.generation.own_sampling import values_of
from edgedec.serve import parsing
from edgedec.serve.body import Body
from edgedec.serve.errors import Answer, ApiError, refused
from edgedec.serve.form import Chunk, Dialect, Form, Router, event
from edgedec.serve.model import Served
from edgedec.serve.other_names import LIMITS, MOST_TOKENS, of_options
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits

_STOP_TYPES = {"eos": "eos", "stop": "word"}
_MOST_BIASES = 1 << 12
# What a server of several models says where none is named, as llama.cpp's does.
_ROUTER = {
    "role": "router",
    "default_generation_settings": {"n_ctx": 0, "params": {}},
    "model_alias": "edgedec",
    "model_path": "none",
    "build_info": f"edgedec {__version__}",
}


def routes(router: Router) -> list[Route]:
    """Return the routes."""

    async def props(request: Request) -> Response:
        name = request.query_params.get("model", "")
        if router.models.several and not name:
            return Answer(_ROUTER)
        with router.models.visit() as visit:
            served = await router.models.given(visit, name)
            return Answer(await asyncio.to_thread(_props, served))

    return [
        router.texts("/completion", Dialect(read, CompletionForm, body_of)),
        router.route("/props", props, "GET", body=body_of),
    ]


def body_of(error: ApiError) -> Chunk:
    """Return an error as llama.cpp's server writes it."""
    return {"error": {"code": error.status, "message": error.message, "type": error.kind}}


def _props(served: Served) -> Chunk:
    template, own = served.tokenizer.chat_template, served.prompts.sampling
    return {
        "default_generation_settings": {
            "n_ctx": served.max_context,
            "params": {"n_predict": -1, **({} if own is None else values_of(own))},
        },
        "total_slots": served.settings.parallel,
        "model_alias": served.settings.name,
        "model_path": served.settings.name,
        "chat_template": "" if template is None else template.source,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"edgedec {__version__}",
        "is_sleeping": False,
    }


def read(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/completion``; ApiError if a field is not as expected."""
    body = Body(fields)
    prompt = body.get("prompt")
    if not isinstance(prompt, str) and not (
        isinstance(prompt, list) and prompt and all(type(one) is int for one in prompt)
    ):
        raise refused("prompt", "one text, or its tokens", prompt)
    body.refuse({
        "n": "this route gives one text: use /v1/completions",
        "echo": "use /v1/completions",
        "logprobs": "use /v1/completions",
    })  # fmt: skip
    own = {} if prompts.sampling is None else values_of(prompts.sampling)
    options = body.part("options")
    other = set() if options is None else set(of_options(options))
    if body.get("repeat_penalty") is not None:
        other.add("repetition_penalty")
    own = {name: value for name, value in own.items() if name not in other}
    given = {**own, **{name: value for name, value in fields.items() if value is not None}}
    if not (given.keys() | other) & LIMITS:
        given["n_predict"] = MOST_TOKENS
    if isinstance(given.get("logit_bias"), list):
        given["logit_bias"] = _bias(given["logit_bias"])
    if body.flag("stream"):
        given["stream_options"] = {"include_usage": True}
    return parsing.completion(given, prompts, limits)


def _bias(given: list[Any]) -> dict[str, Any]:
    """Return pairs of a token and a number as OpenAI's API has them."""
    pairs = all(isinstance(one, list) and len(one) == 2 and type(one[0]) is int for one in given)
    if not pairs or len(given) > _MOST_BIASES or len({one[0] for one in given}) < len(given):
        raise refused("logit_bias", "pairs of a token's id and a number, a token once", given)
    return {str(token): value for token, value in given}


class CompletionForm(Form):
    """An answer of ``/completion``."""

    def __init__(self, parsed: ParsedRequest, head: Chunk) -> None:
        super().__init__(parsed, head)
        self._lines = False

    def whole(self, answer: Chunk) -> Chunk:
        text = self.part(answer)["text"]
        self._lines = "\n" in text
        return self._last(text, answer["usage"])

    def chunk(self, chunk: Chunk) -> str:
        """Return the event of a round; the last one waits for ``end``."""
        text = self.part(chunk)["text"]
        self._lines = self._lines or "\n" in text
        return event({"index": 0, "content": text, "tokens": [], "stop": False}) if text else ""

    def end(self, usage: Chunk | None) -> str:
        """Return the last event, with the figures."""
        assert usage is not None, "read() asks for it"
        return event(self._last("", usage["usage"]))

    def failed(self, error: ApiError) -> str:
        """Return the event that ends a text that fails."""
        return event(body_of(error))

    def _last(self, content: str, usage: Chunk) -> Chunk:
        options, figures = self.parsed.works[0].options, self.figures
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        settings = {"n_predict": options.max_new_tokens, "stop": list(options.stop),
                    **values_of(options.sampling), "seed": figures["seed"]}  # fmt: skip
        return {
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": -1,
            "stop": True,
            "model": self.head["model"],
            "tokens_predicted": usage["completion_tokens"],
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_cached": cached,
            "generation_settings": settings,
            "has_new_line": self._lines,
            "truncated": False,
            "stop_type": _STOP_TYPES.get(figures["finish_reason"], "limit"),
            "stopping_word": figures["stopped_by"] or "",
            "timings": _timings(usage, figures, cached),
            "edgedec": figures,
        }


def _timings(usage: Chunk, figures: Chunk, cached: int) -> Chunk:
    """Return times in milliseconds; those of the prompt are up to the first token."""
    count, rate, first_s = (
        usage["completion_tokens"],
        figures["tokens_per_second"],
        figures["ttft_s"],
    )
    read = usage["prompt_tokens"] - cached
    return {
        "cache_n": cached,
        "prompt_n": read,
        "prompt_ms": first_s * 1000,
        "prompt_per_second": read / first_s if first_s else 0.0,
        "predicted_n": count,
        "predicted_ms": count / rate * 1000 if rate else 0.0,
        "predicted_per_second": rate,
        "draft_n": figures["drafted"],
        "draft_n_accepted": figures["accepted"],
    }
