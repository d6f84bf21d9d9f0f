"""The account: its formula by hand; what drafters and samplers keep, against tracemalloc."""

import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgedec.decoding.drafting._earlier import EARLIER_BYTES
from edgedec.decoding.drafting.lookup import NgramIndex
from edgedec.decoding.drafting.recycle import RecycleDrafter
from edgedec.decoding.emission import Emission
from edgedec.decoding.noise import noise_bytes
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.memory import account as module
from edgedec.memory.account import Account, ModelCosts, Shape, account, remembered

MB = 1_000_000
TARGET = ModelCosts(50 * MB, 8000, 4096, 1000, scratch_bytes_per_token=600, rows=2)
DRAFT = ModelCosts(10 * MB, 2000, 300, 1000)


def test_by_hand() -> None:
    found = account(TARGET, DRAFT, Shape(1000, 3, ("hybrid",)), process=30 * MB, tokenizer=7)
    assert found == Account(
        target=50 * MB,
        draft=10 * MB,
        sessions=0,
        target_kv=1004 * 8000,
        draft_kv=300 * 2000,
        rows=2 * 4 * 1000,
        bias=4 * 4 * 1004,
        workspace=600 * 1000,
        drafter=320 * 1000 + EARLIER_BYTES,
        sampler=32 * 4 * 1000 + 8 * 1000 + 4 * 4 * 1000,
        text=160 * 1000,
        tokenizer=7,
        process=30 * MB,
    )
    assert found.total == sum(found.parts().values())


def test_a_greedy_text_needs_no_noise_and_an_empty_cache_no_memory() -> None:
    shape = Shape(1000, 3, (), sampled=False)
    assert account(TARGET, None, shape, process=0).sampler == 0
    found = account(TARGET, DRAFT.without_cache, shape, process=0)
    assert (found.draft, found.draft_kv) == (10 * MB, 0)


def test_a_draft_model_that_rested_reads_the_output_in_chunks_as_large_as_a_prompts() -> None:
    draft = replace(DRAFT, max_context=4096, scratch_bytes_per_token=100)
    found = account(TARGET, draft, Shape(4000, 3, (), prompt=200), process=0)
    # The target computes small rounds over its output: a chunk's worth over 31 tokens.
    assert found.workspace == 600 * 200 + 100 * 4000
    # Large ones are chunks over more than its prompt.
    wide = Shape(4000, 31, (), prompt=100)
    assert account(TARGET, None, wide, process=0).workspace == 600 * 4000 * 32 // PREFILL_CHUNK


def test_several_texts_by_hand() -> None:
    alone = account(TARGET, DRAFT, Shape(1000, 3, ()), process=0)
    shape = Shape(1000, 3, (), beside=(500, 200))
    draft = replace(DRAFT, scratch_bytes_per_token=100, scratch_each=True)
    found = account(replace(TARGET, own=5, scratch_each=True), draft, shape, process=0)
    assert found.sessions == 2 * 5
    assert found.target_kv == (1004 + 504 + 204) * 8000
    assert found.draft_kv == (300 + 300 + 203) * 2000
    assert found.workspace == 3 * (600 * 1000 + 100 * 300)
    assert found.sampler == alone.sampler + 2 * noise_bytes(1000)
    assert found.text == 160 * (1000 + 500 + 200)


def kept(make: Callable[[], Any]) -> int:
    """Bytes that stay allocated while the result lives."""
    tracemalloc.start()
    try:
        held = make()
        return tracemalloc.get_traced_memory()[0] if held is not None else 0
    finally:
        tracemalloc.stop()


def index(text: list[int]) -> NgramIndex:
    found = NgramIndex(4096)
    found.follow(text)
    found.find()
    return found


@pytest.mark.parametrize("count", [500, 2000, 4000, 6000])
def test_look_up_keeps_what_it_says(count: int) -> None:
    draw = random.Random(1)
    half = [draw.randrange(4096) for _ in range(count // 2)]
    text = half + half  # of what does not repeat itself, longer n-grams are not kept
    # A dictionary doubles, so that it is up to half empty.
    assert 0.75 < kept(lambda: index(text)) / remembered(["lookup"], 4096, count) < 1.02


@pytest.mark.parametrize("columns", [32_000, 151_936])
def test_recycling_keeps_what_it_says(columns: int) -> None:
    assert kept(lambda: RecycleDrafter(columns)) == pytest.approx(
        remembered(["recycle"], columns, 0), rel=0.05
    )


def noise(columns: int) -> Streams:
    streams = Streams(1)
    for position in range(112):  # a multiple of those drawn at once
        found = streams.noise(position, columns, Purpose.TARGET)
        if columns <= 8192:
            found.all()
    return streams


@pytest.mark.parametrize("columns", [4096, 151_936])
def test_noise_is_kept_as_it_says(columns: int) -> None:
    noise(columns)  # counters, which are made once
    assert 0.7 < kept(lambda: noise(columns)) / noise_bytes(columns) < 1.05


def test_a_text_keeps_what_it_says() -> None:
    def text() -> Any:
        draw = random.Random(1)
        prompt = [draw.randrange(300, 4096) for _ in range(2000)]
        events = [Emission(draw.randrange(300, 4096), f" w{n}", "draft") for n in range(2000)]
        return prompt, events, [*prompt, *(event.token for event in events)]

    assert 0.5 < kept(text) / (module._TEXT_BYTES * 4000) < 1.02


def test_drafters_without_models_leave_nothing_out() -> None:
    """A drafter's array that its facts do not name would be found here."""
    honest = remembered(["recycle"], 32_000, 0)
    twin = kept(lambda: (RecycleDrafter(32_000), np.zeros(32_000 * 8, np.int32)))
    assert twin != pytest.approx(honest, rel=0.05), "the twin must be caught"


def test_rows_beyond_those_measured_are_counted() -> None:
    shape = Shape(100, 9, ())
    assert account(TARGET, None, shape, process=0).rows == 8 * 4 * 1000
    assert account(replace(TARGET, rows=12), None, shape, process=0).rows == 0
