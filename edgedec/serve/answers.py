"""Writes answers in the API's format, whole or in chunks, and carries them to their clients."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from time import time
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from edgedec.decoding.emission import Emission
from edgedec.generation.result import Generation
from edgedec.serve import errors
from edgedec.serve.calls import NAMES, Calls
from edgedec.serve.form import Form
from edgedec.serve.parsing import ParsedRequest
from edgedec.serve.turns import News, Ticket, joined
from edgedec.text.tokenizer import Tokenizer

Chunk = dict[str, Any]
# Finish reasons that the API does not define are given under ``edgedec``.
_REASONS = {"eos": "stop", "stop": "stop"}


def figures(result: Generation) -> dict[str, Any]:
    """Return edgedec's own figures of a text: drafter, acceptance and speed."""
    metrics = result.metrics
    return {
        "drafter": result.plan["drafter"],
        "draft": result.plan["drafter"],  # its former name
        "drafted": metrics.drafted_tokens,
        "accepted": metrics.accepted_tokens,
        "acceptance_rate": round(metrics.acceptance_rate, 4),
        "block_efficiency": round(metrics.block_efficiency, 3),
        "speedup_estimate": metrics.speedup_estimate,
        "ttft_s": round(metrics.ttft_s, 6),
        "tokens_per_second": round(metrics.tokens_per_second, 2),
        "finish_reason": result.finish_reason,
        "seed": result.seed,
    }


class Writer:
    """Writes the answer to one request.

    Args:
        name: the model's id.

    Attributes:
        head: fields that all chunks have.

    """

    def __init__(self, parsed: ParsedRequest, tokenizer: Tokenizer, name: str) -> None:
        chat = parsed.chat
        self._parsed, self._tokenizer, self._chat = parsed, tokenizer, chat
        kind = "chat.completion" if chat else "text_completion"
        self.head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}",
            "object": f"{kind}.chunk" if chat and parsed.stream else kind,
            "created": int(time()),
            "model": name,
        }
        hidden = [name for name in NAMES if name in tokenizer.special_names]
        pieces = parsed.stream and parsed.call_pieces
        self._calls = [
            Calls(parsed.tools, hidden, pieces=pieces) if parsed.tools else None
            for _ in parsed.works
        ]
        self._begun = [False] * len(parsed.works)
        self._lengths = [0] * len(parsed.works)
        self._echo = dict(enumerate(parsed.echo))  # those not given back yet
        self._results: list[Generation] = []

    # -- in chunks -------------------------------------------------------------------------------

    def tokens(self, choice: int, events: Sequence[Emission]) -> Chunk | None:
        """Return the chunk of a round; None if there is nothing to show yet."""
        text = self._echo.pop(choice, "") + "".join(event.text for event in events)
        thinking = "".join(event.thinking or "" for event in events)
        calls = self._calls[choice]
        if calls is not None:
            text = calls.push(text)
        called = [] if calls is None else calls.deltas()
        if not (text or thinking or called or self._parsed.pieces or self._parsed.logprobs):
            return None
        chunk = self._chunk(choice, text, self._logprobs(choice, events), None)
        if thinking or called:
            delta = chunk["choices"][0]["delta"]
            delta |= {"reasoning_content": thinking} if thinking else {}
            delta |= {"tool_calls": called} if called else {}
            if not text:
                del delta["content"]
        if self._parsed.pieces:
            chunk["edgedec"] = {"pieces": [[event.text, event.source] for event in events]}
        return chunk

    def end(self, choice: int, result: Generation) -> list[Chunk]:
        """Return the last chunks of a text."""
        self._results.append(result)
        calls, chunks = self._calls[choice], list[Chunk]()
        shown = "".join(event.text for event in result.events)
        thought = "".join(event.thinking or "" for event in result.events)
        # A time limit releases text that no token did.
        rest = self._echo.pop(choice, "") + result.text[len(shown) :]
        if result.thinking != thought:
            chunk = self._chunk(choice, "", None, None)
            chunk["choices"][0]["delta"] = {"reasoning_content": result.thinking[len(thought) :]}
            chunks.append(chunk)
        if calls is not None:
            rest = calls.push(rest) + calls.finish()
        if rest:
            chunks.append(self._chunk(choice, rest, None, None))
        if calls is not None and (called := calls.deltas()):
            chunk = self._chunk(choice, "", None, None)
            chunk["choices"][0]["delta"] = {"tool_calls": called}
            chunks.append(chunk)
        last = self._chunk(choice, "", None, self._reason(choice, result))
        if self._chat:
            last["choices"][0]["delta"] = {}
        return [*chunks, {**last, "edgedec": self._figures(choice, result)}]

    def usage(self) -> Chunk | None:
        """Return the chunk with the tokens of the whole request, if it was asked for."""
        if not self._parsed.usage:
            return None
        return {**self.head, "choices": [], "usage": self._usage()}

    def _chunk(self, choice: int, text: str, logprobs: Any, reason: str | None) -> Chunk:
        filled: dict[str, Any] = {"text": text}
        if self._chat:
            delta = {} if self._begun[choice] else {"role": "assistant"}
            filled = {"delta": {**delta, "content": text}}
            self._begun[choice] = True
        return {
            **self.head,
            "choices": [{"index": choice, **filled, "logprobs": logprobs, "finish_reason": reason}],
        }

    # -- whole -----------------------------------------------------------------------------------

    def whole(self, results: Sequence[Generation]) -> dict[str, Any]:
        """Return the answer of a request that does not stream."""
        self._results = list(results)
        choices = [self._choice(place, result) for place, result in enumerate(results)]
        ours = [self._figures(place, result) for place, result in enumerate(results)]
        if self._parsed.pieces:
            for own, result in zip(ours, results, strict=True):
                own["pieces"] = [[event.text, event.source] for event in result.events]
        answer = {**self.head, "choices": choices, "usage": self._usage()}
        return {**answer, "edgedec": ours[0] if len(ours) == 1 else {"choices": ours}}

    def _choice(self, place: int, result: Generation) -> dict[str, Any]:
        logprobs = self._logprobs(place, result.events)
        if not self._chat:
            text, reason = self._echo.pop(place, "") + result.text, self._reason(place, result)
            return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": reason}
        message: dict[str, Any] = {"role": "assistant", "content": result.text, "refusal": None}
        if result.thinking:
            message["reasoning_content"] = result.thinking
        calls = self._calls[place]
        if calls is not None:
            text = calls.push(result.text) + calls.finish()
            if calls.found:
                message["content"] = text.strip() or None
                message["tool_calls"] = calls.found
        reason = self._reason(place, result)
        return {"index": place, "message": message, "logprobs": logprobs, "finish_reason": reason}

    # -- both ------------------------------------------------------------------------------------

    def _reason(self, choice: int, result: Generation) -> str:
        calls = self._calls[choice]
        if calls is not None and calls.found and not calls.cut:
            return "tool_calls"
        return _REASONS.get(result.finish_reason, "length")

    def _figures(self, choice: int, result: Generation) -> dict[str, Any]:
        return {**figures(result), "stopped_by": self._stopped_by(choice, result)}

    def _stopped_by(self, choice: int, result: Generation) -> str | None:
        """Return the stop string that ended a text; None if none did, or it cannot be told."""
        stops = self._parsed.works[choice].options.stop if result.finish_reason == "stop" else ()
        if len(stops) < 2:
            return next(iter(stops), None)
        written = self._tokenizer.decode(result.token_ids)
        return min((one for one in stops if result.text + one in written), key=len, default=None)

    def _usage(self) -> dict[str, Any]:
        prompts = [len(work.prompt) for work in self._parsed.works]
        # Texts after one prompt count it once, as the API does.
        distinct = {tuple(work.prompt) for work in self._parsed.works}
        prompt = sum(map(len, distinct)) if self._chat else sum(prompts)
        written = sum(len(result.events) for result in self._results)
        cached = self._results[0].metrics.reused_tokens if self._results else 0
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        if self._chat:
            thinking = sum(result.thinking_tokens for result in self._results)
            usage["completion_tokens_details"] = {"reasoning_tokens": thinking}
        return usage

    def _logprobs(self, choice: int, events: Sequence[Emission]) -> dict[str, Any] | None:
        if not self._parsed.logprobs:
            return None
        if self._chat:
            answer = [self._entry(event) for event in events if event.thinking is None]
            return {"content": answer, "refusal": None}
        offsets = []
        for event in events:
            offsets.append(self._lengths[choice])
            self._lengths[choice] += len(event.text)
        return {
            "tokens": [self._token(event.token) for event in events],
            "token_logprobs": [event.logprob for event in events],
            "top_logprobs": [
                {self._token(token): value for token, value in event.top_logprobs or ()}
                for event in events
            ],
            "text_offset": offsets,
        }

    def _entry(self, event: Emission) -> dict[str, Any]:
        best = [self._scored(token, value) for token, value in event.top_logprobs or ()]
        return {**self._scored(event.token, event.logprob), "top_logprobs": best}

    def _scored(self, token: int, logprob: float | None) -> dict[str, Any]:
        written = self._tokenizer.bytes_of(token)
        text = written.decode("utf-8", "replace")
        return {"token": text, "bytes": list(written), "logprob": logprob}

    def _token(self, token: int) -> str:
        return self._tokenizer.bytes_of(token).decode("utf-8", "replace")


class EventStream(Response):
    """A streamed answer; a client that leaves ends its texts.

    Args:
        form: of the chunks on the wire.
        first: news that have come already.
        headers: of the response, besides those of a stream.

    """

    def __init__(
        self,
        writer: Writer,
        form: Form,
        ticket: Ticket,
        first: list[News],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(media_type=form.media_type, headers=headers)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"  # nginx passes each event on at once
        self._writer, self._form, self._ticket, self._first = writer, form, ticket, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _watched(receive, self._ticket):
            try:
                start = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})
                async for text in self._texts():
                    data = text.encode("ascii")
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    self._ticket.sent()
                await send({"type": "http.response.body", "body": b""})
            finally:
                self._ticket.leave()

    async def _texts(self) -> AsyncIterator[str]:
        news, form = self._first, self._form
        text = form.begin()
        try:
            while news:
                text += "".join(
                    form.chunk(chunk) for item in joined(news) for chunk in self._chunks(item)
                )
                if text:
                    yield text
                news, text = await self._ticket.take(), ""
            yield text + form.end(self._writer.usage())
        except Exception as error:
            yield form.failed(errors.of(error))

    def _chunks(self, news: News) -> list[dict[str, Any]]:
        if news.result is not None:
            return self._writer.end(news.choice, news.result)
        chunk = self._writer.tokens(news.choice, news.events)
        return [] if chunk is None else [chunk]


@asynccontextmanager
async def _watched(receive: Receive, ticket: Ticket) -> AsyncIterator[None]:
    """Cancel a request whose client leaves meanwhile."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        ticket.leave()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def unless_left(request: Request, ticket: Ticket) -> list[News]:
    """Return the next news; none if the client leaves first."""
    async with _watched(request.receive, ticket):
        return await ticket.take()


async def all_of(request: Request, ticket: Ticket) -> list[Generation]:
    """Return the finished texts of a request.

    Raises:
        ClientDisconnect: its client has left.

    """
    results = []
    async with _watched(request.receive, ticket):
        try:
            while news := await ticket.take():
                results += [item.result for item in news if item.result is not None]
        finally:
            ticket.leave()
    if len(results) < len(ticket.works):
        raise ClientDisconnect
    return results
