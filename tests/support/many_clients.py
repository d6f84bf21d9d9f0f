"""Many clients at once of one address, and what became of each of their requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

WHOLE, REFUSED, CUT = "whole", "refused", "cut"


@dataclass(eq=False)
class Asked:
    """One request.

    Attributes:
        client, prompt, stream: who asks, for what, and whether for a stream.
        text: what has come of it; ``server`` is who wrote it, "" if nothing has come.
        became: ``WHOLE``, ``REFUSED`` with an API's error that says when to come again, ``CUT`` by
            an end of the connection or an error event after a server had begun its stream, or
            what else was seen.
        how: the error's words.
        begun: whether a server has begun to answer: its stream's headers have come.

    """

    client: int
    prompt: str
    stream: bool
    text: str = ""
    server: str = ""
    became: str = ""
    how: str = ""
    begun: bool = False

    @property
    def streaming(self) -> bool:
        """Whether a part of it has come."""
        return bool(self.stream and self.text and not self.became)


@dataclass
class Clients:
    """Clients that ask one after another for texts of a model.

    Args:
        url: of the server or balancer.
        texts: the right text of each prompt.
        count: number of clients; each asks ``each`` times.
        tokens: of a text.

    Attributes:
        asked: all requests so far.

    """

    url: str
    texts: Mapping[str, str]
    count: int
    each: int
    tokens: int
    asked: list[Asked] = field(default_factory=list)

    async def run(self, watch: Callable[[Sequence[Asked]], bool]) -> Counter[str]:
        """Ask for everything; return what became of it.

        Args:
            watch: called after each part of an answer, until it returns True.

        """
        self._watch, self._seen = watch, False
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=self.url, timeout=300, limits=limits) as http:
            await asyncio.gather(*(self._client(http, number) for number in range(self.count)))
        assert self._seen, "what was waited for never was"
        return Counter(one.became for one in self.asked)

    async def _client(self, http: httpx.AsyncClient, number: int) -> None:
        prompts = list(self.texts)
        for turn in range(self.each):
            stream = (number + turn) % 2 == 0
            one = Asked(number, prompts[(number + turn) % len(prompts)], stream)
            self.asked.append(one)
            body = {
                "prompt": one.prompt, "max_tokens": self.tokens, "temperature": 0,
                "stream": stream,
            }  # fmt: skip
            headers = {"X-Session-Id": f"conversation {number}"}
            try:
                await self._answer(http, one, body, headers)
            except httpx.TransportError as error:
                one.how = repr(error)
                one.became = CUT if one.begun else f"no answer: {error!r}"
            if one.became in (WHOLE, CUT):
                self._check(one)

    def _check(self, one: Asked) -> None:
        right = self.texts[one.prompt]
        if not (one.text == right if one.became == WHOLE else right.startswith(one.text)):
            one.became = f"another text: {one.text!r} instead of {right!r}"

    async def _answer(
        self, http: httpx.AsyncClient, one: Asked, body: dict[str, Any], headers: dict[str, str]
    ) -> None:
        async with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            if answer.status_code != 200 or not one.stream:
                self._whole(one, answer, await answer.aread())
                return
            one.begun = True
            async for line in answer.aiter_lines():
                if line:
                    self._event(one, line.removeprefix("data: "))
        one.became = one.became or "a stream without an end"

    def _whole(self, one: Asked, answer: httpx.Response, raw: bytes) -> None:
        status = answer.status_code
        try:
            body = json.loads(raw)
            if status == 200:
                one.text, one.server = body["choices"][0]["text"], body["model"]
                one.became = WHOLE
            else:
                one.how = f"{status} {body['error']['code']}"
                one.became = REFUSED if int(answer.headers["retry-after"]) else "at once again"
        except (ValueError, KeyError, TypeError):
            one.became = f"{status}, not in the API's form: {raw[:80]!r}"
        self._look()

    def _event(self, one: Asked, data: str) -> None:
        if data == "[DONE]":
            one.became = one.became or WHOLE
            return
        chunk = json.loads(data)
        if "error" in chunk:
            one.how, one.became = f"an error event: {chunk['error']['code']}", CUT
            return
        one.server = chunk["model"]
        one.text += "".join(choice["text"] for choice in chunk["choices"])
        self._look()

    def _look(self) -> None:
        self._seen = self._seen or self._watch(self.asked)
