"""Memory does not grow: 200 conversations in turn, and 10,000 rounds that accept and reject."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from test_saved_texts import exported

from edgedec import GenerateOptions, Pipeline, SamplingParams
from edgedec.hardware.resident import release_free

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc"),
]
# An allocator keeps some pages; a leak of a few kilobytes a text is far more.
_MOST = 2_000_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("pair"), 0)


def resident() -> int:
    gc.collect()
    release_free()  # what earlier tests freed would hide what is taken from it
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(turn: Callable[[], object], turns: int) -> int:
    """Bytes that a process takes more after ``turns`` turns than after the first half of them."""
    for _ in range(turns // 2):
        turn()
    before = resident()
    for _ in range(turns - turns // 2):
        turn()
    return resident() - before


def talking(pipeline: Pipeline, chance: random.Random) -> Callable[[], None]:
    """Each turn is a conversation of four texts, one of them left in the middle."""

    def turn() -> None:
        text = [chance.randrange(5, 300) for _ in range(chance.randrange(10, 60))]
        for place in range(4):
            sampling = SamplingParams(temperature=0.9, seed=chance.randrange(1000))
            options = GenerateOptions(24, sampling, ignore_eos=True)
            stream = pipeline.stream(text, options)
            if place == 2:
                next(stream)
                stream.close()
                continue
            text = [*text, *(event.token for event in stream), chance.randrange(5, 300)]

    return turn


@pytest.mark.parametrize("drafter", ["hybrid", "tree"])
def test_conversations(bundle: Path, drafter: str) -> None:
    with Pipeline.open(
        bundle, threads=1, plan="none", drafter=drafter, conversations=3
    ) as pipeline:
        assert growth(talking(pipeline, random.Random(1)), 400) < _MOST
        assert len(pipeline.engine.pool) == 3


def test_rounds_that_accept_and_reject(bundle: Path) -> None:
    rounds = accepted = drafted = 0
    with Pipeline.open(bundle, threads=1, drafter="model", draft_length=4) as pipeline:

        def turn() -> None:
            nonlocal rounds, accepted, drafted
            options = GenerateOptions(400, SamplingParams(temperature=1.2, seed=rounds))
            found = pipeline.generate([5, 6, 7], options, ignore_eos=True).metrics
            rounds += found.target_passes
            accepted += found.accepted_tokens
            drafted += found.drafted_tokens

        while rounds < 5000:
            turn()
        before = resident()
        while rounds < 15_000:
            turn()
        assert resident() - before < _MOST
    assert 0.1 < accepted / drafted < 0.95


def test_a_leak_is_noticed(bundle: Path) -> None:
    """Broken twin: each conversation leaves something behind."""
    kept = []
    with Pipeline.open(bundle, threads=1, plan="none", drafter="hybrid") as pipeline:
        turn = talking(pipeline, random.Random(1))

        def leaking() -> None:
            turn()
            kept.append(os.urandom(40_000))

        assert growth(leaking, 200) > _MOST
