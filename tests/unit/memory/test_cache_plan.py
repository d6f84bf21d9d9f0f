"""The context that both caches have room for is the longest one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgedec.errors import MemoryBudgetError
from edgedec.memory.budget import KV_MEMORY, MAX_CONTEXT, TRAINED, CachePlan, plan_caches
from edgedec.testing import FakeModel


def info(max_context: int, each: int) -> Any:
    return replace(FakeModel(12).info, max_context=max_context, kv_bytes_per_token=each)


TARGET, DRAFT = info(1000, 30), info(400, 7)


def held(tokens: int, draft: Any) -> int:
    return 30 * tokens + (7 * min(tokens, 400) if draft else 0)


@given(st.integers(64 * 37, 33_000), st.sampled_from([DRAFT, None]))
def test_one_token_more_would_not_fit(room: int, draft: Any) -> None:
    plan = plan_caches(TARGET, draft, max_context=None, kv_memory=room)
    assert plan.kv_bytes == held(plan.capacity, draft) <= room
    if plan.capacity < 1000:
        assert held(plan.capacity + 1, draft) > room
        assert plan.bound == KV_MEMORY
    else:
        assert plan.bound == TRAINED


def test_what_is_asked_for_is_planned() -> None:
    asked = plan_caches(TARGET, DRAFT, max_context=500, kv_memory=held(500, DRAFT))
    assert asked == CachePlan(500, held(500, DRAFT), MAX_CONTEXT)
    assert plan_caches(TARGET, None, max_context=1000, kv_memory=None).bound == TRAINED


@pytest.mark.parametrize(
    ("context", "room", "words"),
    [
        (500, held(500, DRAFT) - 1, "KV of 500 tokens needs .* MB: try --max-context 499"),
        (None, 100, r"--kv-memory 100 bytes holds 2 tokens: give at least \d+ bytes, for \d+"),
        (1001, None, "--max-context 1001: expected 1 to 1000, the longest context of fake"),
        (0, None, "--max-context 0: expected 1 to 1000"),
    ],
)
def test_what_does_not_fit_is_refused(context: int | None, room: int | None, words: str) -> None:
    with pytest.raises(MemoryBudgetError) as refused:
        plan_caches(TARGET, DRAFT, max_context=context, kv_memory=room)
    assert re.search(words, str(refused.value)), refused.value


def test_the_least_that_a_refusal_names_is_enough() -> None:
    with pytest.raises(MemoryBudgetError) as refused:
        plan_caches(TARGET, DRAFT, max_context=None, kv_memory=100)
    (least, tokens) = map(int, re.findall(r"least (\d+) bytes, for (\d+)", str(refused.value))[0])
    assert plan_caches(TARGET, DRAFT, max_context=None, kv_memory=least).capacity == tokens
    with pytest.raises(MemoryBudgetError):
        plan_caches(TARGET, DRAFT, max_context=None, kv_memory=least - 1)
