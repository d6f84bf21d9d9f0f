"""Drafts from earlier texts are of the same key's, and there are none with a private cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from served_here import serving_here

from edgedec import Pipeline
from edgedec.decoding.drafting._earlier import EarlierTexts

ONE, OTHER = "a-key-of-somebody-0123456789", "a-key-of-somebody-else-0123"
# Ids of special tokens, any of which may end a text.
_ENDS = {str(token): -100 for token in (0, 1, 2, 3, 4, 340, 341)}
BODY: dict[str, Any] = {
    "model": "tiny", "prompt": "A file that is sent again and again", "max_tokens": 40,
    "temperature": 0.9, "seed": 3, "logit_bias": _ENDS, "edgedec": {"draft_length": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def pipeline(bundle: Path) -> Iterator[Pipeline]:
    with Pipeline.open(bundle, drafter="suffix", threads=1, parallel=2) as one:
        yield one


async def copied(
    pipeline: Pipeline, keys: Sequence[str], *, keep: bool | None = None, **settings: Any
) -> list[int]:
    """Tokens that clients with these keys had accepted from earlier texts; their texts agree."""
    pipeline.forget()
    found: list[int] = []
    body = {**BODY, "edgedec": {**BODY["edgedec"], "keep": keep}}
    async with serving_here(pipeline, keys=(ONE, OTHER), **settings) as (served, client):
        served.turns.finished = lambda _, result: found.append(result.metrics.sources["suffix"])
        texts = set()
        for key in keys:
            headers = {"Authorization": f"Bearer {key}"}
            answer = await client.post("/v1/completions", json=body, headers=headers)
            texts.add(answer.json()["choices"][0]["text"])
    assert len(texts) == 1
    return found


async def test_they_are_of_the_same_key(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again, other, still = await copied(pipeline, (ONE, ONE, OTHER, ONE))
    assert (first, other) == (0, 0)
    assert min(again, still) > 5
    # A twin that tells no key from another is caught.
    begin = EarlierTexts.begin
    monkeypatch.setattr(
        EarlierTexts, "begin", lambda self, who, _, text: begin(self, who, "", text)
    )
    assert (await copied(pipeline, (ONE, OTHER)))[1] > 5


async def test_a_request_may_ask_that_it_is_not_kept(pipeline: Pipeline) -> None:
    assert await copied(pipeline, (ONE, ONE), keep=False) == [0, 0]
    assert (await copied(pipeline, (ONE, ONE), keep=True))[1] > 5


async def test_there_are_none_with_a_private_cache(pipeline: Pipeline) -> None:
    assert await copied(pipeline, (ONE, ONE), private=True) == [0, 0]
