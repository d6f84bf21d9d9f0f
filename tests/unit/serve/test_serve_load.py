"""A thousand clients, of whom a third leave and a third read slowly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from serving import Server
from waiting import until

from edgedec import Pipeline

TOKENS, PROMPTS = 24, 12


def asked(place: int) -> dict[str, Any]:
    """Some greedy, some seeded, with a beginning in common."""
    number = place % PROMPTS
    return {
        "prompt": f"A system prompt that many share, and then number {number}",
        "max_tokens": TOKENS, "temperature": 0.8 if number % 2 else 0, "seed": number,
    }  # fmt: skip


async def client(api: openai.AsyncOpenAI, place: int, chance: random.Random) -> tuple[str, str]:
    """Return what became of it, and its text."""
    text, kind = "", ("whole", "leaves", "slow")[place % 3]
    while True:
        try:
            stream = await api.completions.create(model="tiny", stream=True, **asked(place))
            break
        except openai.RateLimitError as error:
            longest = min(2.0, float(error.response.headers["retry-after"]))
            await asyncio.sleep(chance.uniform(0.2, longest))
    async with stream:
        async for chunk in stream:
            text += chunk.choices[0].text
            if kind == "leaves":
                return kind, text
            if kind == "slow":
                await asyncio.sleep(chance.uniform(0, 0.05))
    return kind, text


def texts_alone(bundle: Path) -> list[str]:
    with Pipeline.open(bundle, drafter="none", threads=1) as pipeline:
        found = []
        for place in range(PROMPTS):
            given = asked(place)
            result = pipeline.generate(
                given["prompt"], max_new_tokens=TOKENS, temperature=given["temperature"],
                seed=given["seed"],
            )  # fmt: skip
            found.append(result.text)
        return found


def rest(server: Server) -> None:
    """Wait until no text goes on without its client."""
    figures = ("edgedec_running_requests", "edgedec_waiting_requests")
    until(lambda: not any(map(server.figure, figures)))


def load(server: Server, count: int) -> list[tuple[str, str]]:
    async def main() -> list[tuple[str, str]]:
        chance = random.Random(0)
        places = asyncio.Semaphore(120)
        async with server.asyncly() as api:

            async def one(place: int) -> tuple[str, str]:
                async with places:
                    return await client(api, place, chance)

            return await asyncio.gather(*(one(place) for place in range(count)))

    return asyncio.run(main())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [1000])
def test_nothing_leaks_and_every_text_is_its_own(
    bundle: Path, start: Callable[..., Any], count: int
) -> None:
    alone = texts_alone(bundle)
    with start("--drafter", "hybrid", "--queue", "32") as server:
        load(server, 60)
        rest(server)
        before = server.figure("edgedec_memory_bytes")
        files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        threads = len(list(Path(f"/proc/{server.pid}/task").iterdir()))
        found = load(server, count)
        rest(server)
        assert Counter(kind for kind, _ in found).keys() == {"whole", "leaves", "slow"}
        for place, (kind, text) in enumerate(found):
            wanted = alone[place % PROMPTS]
            assert wanted.startswith(text) if kind == "leaves" else text == wanted
        grown = server.figure("edgedec_memory_bytes") - before
        assert grown < 40e6
        assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) <= files + 130
        assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) <= threads + 8


def test_a_few_clients_at_once(bundle: Path, server: Server) -> None:
    """The same with few, in every run of the tests."""
    alone = texts_alone(bundle)
    for place, (kind, text) in enumerate(load(server, 24)):
        wanted = alone[place % PROMPTS]
        assert wanted.startswith(text) if kind == "leaves" else text == wanted
    rest(server)
