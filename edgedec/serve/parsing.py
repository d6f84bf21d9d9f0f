"""Parses the body of a request into generations to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from edgedec._support.options import Declared, declared
from edgedec.decoding import drafting
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError
from edgedec.generation.options import GenerateOptions
from edgedec.generation.prompts import template_variables
from edgedec.serve import messages, other_names
from edgedec.serve.body import Body
from edgedec.serve.calls import NAMES
from edgedec.serve.errors import ApiError, refused
from edgedec.serve.messages import Tools
from edgedec.serve.prompts import Prompts
from edgedec.serve.settings import Limits
from edgedec.serve.turns import Work

_MOST_TOKENS, _COMPLETION_TOKENS = other_names.MOST_TOKENS, 16
# Values of clients, with what they mean here: top_p of 0 is the most likely token alone.
_MEANT = {"top_p": (0, math.nextafter(0, 1)), "top_k": (-1, 0), "seed": (-1, None)}


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A parsed request.

    Attributes:
        stream: whether tokens go out as they come.
        usage: whether a stream ends with the number of tokens used.
        pieces: whether each token's text and source is given.
        tools: functions that a chat model may call; None without any.
        call_pieces: whether a stream has the arguments of calls as they come.
        logprobs: whether log probabilities are given.
        chat: whether the texts are answers in a conversation.
        echo: texts given back in front of those of ``works``; none unless asked for.
        ignored: names of fields that were accepted without an effect.
        answer: the whole answer, where it needs no text.

    """

    works: list[Work]
    stream: bool
    usage: bool
    pieces: bool
    tools: Tools | None = None
    logprobs: bool = False
    chat: bool = False
    echo: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    answer: dict[str, Any] | None = None
    call_pieces: bool = True


def completion(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/v1/completions``; ApiError if a field is not as expected."""
    body = _body(fields)
    top, echo = body.whole("logprobs", 0, 20), body.flag("echo")
    if echo and top is not None:
        raise ApiError(
            400, "echo: a prompt has no log probabilities here: leave echo or logprobs out",
            param="echo",
        )  # fmt: skip
    given = _options(body, limits)
    options = _made({"max_new_tokens": _COMPLETION_TOKENS, **given, "logprobs": top})
    other_names.check_samplers(body.rows("samplers"), options.sampling)
    given_prompts, suffix = body.get("prompt"), body.text("suffix")
    choices = body.whole("n", 1, limits.choices) or 1
    parsed = _parsed(body, None, top is not None, chat=False)
    body.end()
    found = _prompts(given_prompts, suffix, prompts, limits)
    _works(parsed, [tokens for _, tokens in found], options, choices, limits)
    if echo:
        texts = [prompts.decode(one) if isinstance(one, list) else one for one, _ in found]
        parsed.echo.extend(text for text in texts for _ in range(choices))
    return parsed


def chat(fields: dict[str, Any], prompts: Prompts, limits: Limits) -> ParsedRequest:
    """Read a request of ``/v1/chat/completions``; ApiError if a field is not as expected."""
    body = _body(fields)
    wanted = body.flag("logprobs") or False
    top = body.whole("top_logprobs", 0, 20)
    if top is not None and not wanted:
        raise ApiError(400, "top_logprobs: needs logprobs: true", param="top_logprobs")
    given = _options(body, limits, prompts.sampling)
    variables, given["think"] = messages.read_thinking(body)
    longer = body.limit("max_completion_tokens", _MOST_TOKENS)
    if longer is not None:
        given["max_new_tokens"] = longer
    talk, ending = messages.read(body.get("messages")), messages.ending(body)
    variables |= messages.documents(body)
    tools = Tools.read(body)
    if tools is not None and tools.grammar is not None:
        if "grammar" in given:
            raise ApiError(400, "grammar: a call that must be has its own: leave it out")
        given["grammar"] = tools.grammar
    if tools is not None:
        given["shown_tokens"] = NAMES
    options = _made(
        {"max_new_tokens": _MOST_TOKENS, **given, "logprobs": (top or 0) if wanted else None}
    )
    other_names.check_samplers(body.rows("samplers"), options.sampling)
    choices = body.whole("n", 1, limits.choices) or 1
    parsed = _parsed(body, tools, wanted, chat=True)
    body.end()
    template = prompts.template
    if "documents" in variables and template is not None and not template.reads_documents:
        raise ApiError(
            400, "documents: the model's chat template does not read them: send them in a message",
            param="documents",
        )  # fmt: skip
    variables |= template_variables(prompts.tokenizer, options)
    listed = tools.given if tools else None
    prompt = prompts.encode_chat(talk, listed, variables, **ending)
    if template is not None:
        parsed.ignored.extend(template.left_out(talk, listed))
    _works(parsed, [prompt], options, choices, limits)
    return parsed


def _body(fields: dict[str, Any]) -> Body:
    """Return the fields of a request by their usual names."""
    found, ignored = other_names.translated(fields)
    body = Body(found)
    body.ignored.extend(ignored)
    body.get("model")
    return body


def _parsed(body: Body, tools: Tools | None, logprobs: bool, *, chat: bool) -> ParsedRequest:
    stream, usage = body.flag("stream") or False, False
    if (more := body.part("stream_options")) is not None:
        if not stream:
            raise ApiError(400, "stream_options: needs stream: true", param="stream_options")
        usage = more.flag("include_usage") or False
        more.end(("include_obfuscation",))
    own = body.part("edgedec")
    pieces = (own.flag("pieces") or False) if own is not None else False
    if own is not None:
        own.end()
    return ParsedRequest(
        [], stream, usage, pieces, tools, logprobs, chat=chat, ignored=body.ignored
    )


def _options(body: Body, limits: Limits, own: SamplingParams | None = None) -> dict[str, Any]:
    """Return the options common to both routes, named as in ``GenerateOptions``.

    Args:
        own: the sampling that the model asks for; None is the API's.

    """
    sampling = _wired(body, declared(SamplingParams)) | {"logit_bias": _bias(body)}
    repeat = body.number("repeat_penalty", 0, 100)
    if sampling["repetition_penalty"] is None:
        sampling["repetition_penalty"] = repeat
    for name, (value, meant) in _MEANT.items():
        sampling[name] = meant if sampling[name] == value else sampling[name]
    given: dict[str, Any] = {
        "max_new_tokens": body.limit("max_tokens", _MOST_TOKENS),
        "stop": _stops(body, limits),
    }
    given |= messages.read_format(body.part("response_format"))
    if grammar := body.text("grammar"):
        given["grammar"] = grammar
    ours = body.part("edgedec")
    if ours is not None:
        former = ours.text("draft", drafting.names())  # its former name
        given["drafter"] = ours.text("drafter", drafting.names()) or former
        given["spec"] = ours.text("spec")
        given |= _wired(ours, declared(GenerateOptions))
    if body.flag("speculative") is False:
        if given.get("draft_length"):
            message = "speculative: edgedec.draft_length says otherwise: leave one out"
            raise ApiError(400, message, param="speculative")
        given["draft_length"] = 0
    chosen = {name: value for name, value in given.items() if value is not None}
    if ours is not None and ours.flag("keep") is False:
        chosen["owner"] = None
    drawn = {name: value for name, value in sampling.items() if value is not None}
    default: dict[str, Any] = {"temperature": 1.0} if own is None else asdict(own)
    return {**chosen, "sampling": default | drawn}


def _wired(body: Body, options: Mapping[str, Declared]) -> dict[str, Any]:
    """Return the fields of a request that options declare; None of those that were left out."""
    found = {}
    for name, one in options.items():
        if one.option.wire is not None:
            read: Any = body.whole if one.type.startswith("int") else body.number
            found[name] = read(name, *one.option.wire)
    return found


def _made(given: dict[str, Any]) -> GenerateOptions:
    try:
        return GenerateOptions(**{**given, "sampling": SamplingParams(**given["sampling"])})
    except InputError as error:
        raise ApiError(400, str(error)) from None


def _works(
    parsed: ParsedRequest,
    prompts: list[list[int]],
    options: GenerateOptions,
    choices: int,
    limits: Limits,
) -> None:
    """Add the texts; several texts after one prompt have different seeds."""
    if len(prompts) * choices > limits.choices:
        raise ApiError(400, f"expected at most {limits.choices} texts of one request", param="n")
    seed = options.sampling.seed
    for prompt in prompts:
        for choice in range(choices):
            sampling = options.sampling
            if seed is not None and choice:
                sampling = replace(sampling, seed=seed + choice)
            parsed.works.append(Work(prompt, replace(options, sampling=sampling)))


def _stops(body: Body, limits: Limits) -> tuple[str, ...] | None:
    given = body.get("stop")
    if given is None:
        return None
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or len(found) > limits.stops:
        raise refused("stop", f"a text, or a list of at most {limits.stops}", given)
    for one in found:
        if not isinstance(one, str) or len(one) > limits.stop_chars:
            raise refused("stop", f"texts of at most {limits.stop_chars} characters", one)
    return tuple(filter(None, found))  # clients send [""] for none


def _bias(body: Body) -> dict[int, float] | None:
    given = body.get("logit_bias")
    if given is None or given == []:
        return None
    if not isinstance(given, dict):
        raise refused("logit_bias", "an object of token ids with numbers", given)
    found = {}
    for token, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # As it is usually written: "03" beside "3" would be the same token twice.
        known = token.isdecimal() and len(token) <= 9 and token == str(int(token))
        if not known or not number or not -100 <= value <= 100:
            raise refused("logit_bias", "token ids with numbers from -100 to 100", {token: value})
        found[int(token)] = float(value)
    return found


def _prompts(
    given: Any, suffix: str | None, prompts: Prompts, limits: Limits
) -> list[tuple[str | list[int], list[int]]]:
    """Return the prompts of a completion, as they were given and as the model reads them.

    Args:
        given: a text, tokens, or several of either.
        suffix: text after the completion; None or empty for none.

    """
    expected = "a text, token ids, or a list of either"
    tokens = isinstance(given, list) and bool(given) and all(type(one) is int for one in given)
    rows = [given] if tokens or isinstance(given, str) else given
    if not isinstance(rows, list) or not rows:
        raise refused("prompt", expected, given)
    if len(rows) > limits.choices:
        raise refused("prompt", f"at most {limits.choices} prompts", len(rows))
    found: list[tuple[str | list[int], list[int]]] = []
    for one in rows:
        if isinstance(one, str):
            found.append((one, prompts.infill(one, suffix) if suffix else prompts.encode(one)))
        elif suffix:
            raise refused("suffix", "a prompt that is a text", one)
        elif isinstance(one, list) and all(type(token) is int for token in one):
            found.append((one, one))
        else:
            raise refused("prompt", expected, one)
    return found
