"""A state that cannot be cut is gone back in: by dropping its last tokens, or by a copy."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from edgedec.decoding.session_base import PREFILL_CHUNK
from edgedec.decoding.trail import Trail
from edgedec.errors import CannotRollback

FREE = 3


class Listed(Trail[list[int], tuple[int, ...]]):
    """The cache is a list of its tokens, of which the last few of a pass can be dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped, self.read = 0, 0

    def _drop(self, cache: list[int], length: int) -> bool:
        self.dropped += len(cache) - length
        del cache[length:]
        return True

    def _state(self, cache: list[int], length: int) -> tuple[int, ...]:
        assert len(cache) == length
        return tuple(cache)

    def _put(self, cache: list[int], state: tuple[int, ...] | None, length: int) -> None:
        cache[:] = state or ()

    def _read(self, cache: list[int], tokens: Sequence[int], at: int) -> None:
        assert len(cache) == at
        cache.extend(tokens)
        self.read += len(tokens)

    def _exact(self, cache: list[int]) -> bool:
        return False

    def _free(self, cache: list[int], count: int) -> int:
        return min(count, FREE)

    def passed(self, cache: list[int], tokens: Sequence[int]) -> None:
        cache.extend(tokens)
        self.computed(cache, tokens)


@pytest.mark.parametrize(
    ("between", "back", "dropped", "read"),
    [
        (lambda trail, cache: None, FREE, FREE, 0),
        (lambda trail, cache: None, FREE + 1, 0, 20 - FREE - 1),
        (lambda trail, cache: trail.moved(), FREE, 0, 20 - FREE),
        (lambda trail, cache: trail.go_back(cache, 19), FREE, 1, 20 - FREE),  # once a pass
    ],
)
def test_the_last_tokens_of_a_pass_are_dropped(
    between: Callable[[Listed, list[int]], None], back: int, dropped: int, read: int
) -> None:
    trail, cache = Listed(), list[int]()
    trail.passed(cache, range(20))
    between(trail, cache)
    trail.go_back(cache, 20 - back)
    assert cache == list(range(20 - back))
    assert (trail.dropped, trail.read) == (dropped, read)


def test_another_cache_is_gone_back_in_by_copies_alone() -> None:
    trail, cache, other = Listed(), list[int](), Listed()
    trail.passed(cache, range(20))
    other.follow(trail)
    copied = [*cache]
    other.go_back(copied, 19)
    assert (copied, other.dropped, other.read) == (cache[:19], 0, 19)


@pytest.mark.parametrize("seed", range(5))
def test_any_walk_leaves_the_tokens_that_it_says(seed: int) -> None:
    rng, trail, cache, text = random.Random(seed), Listed(), list[int](), list[int]()
    refused = 0
    for _ in range(200):
        if rng.random() < 0.6:
            tokens = [rng.randrange(99) for _ in range(rng.randint(1, 90))]
            text += tokens
            trail.passed(cache, tokens)
            if rng.random() < 0.5:
                trail.committed(cache)
            else:
                trail.prefilled(cache, len(tokens))
        else:
            wanted = rng.randint(max(0, len(text) - 2 * PREFILL_CHUNK), len(text))
            length = trail.nearest(wanted)
            assert 0 <= length <= wanted
            if length != wanted:
                refused += 1
                with pytest.raises(CannotRollback, match=f"{length} is possible"):
                    trail.check(wanted)
            trail.check(length)
            trail.go_back(cache, length)
            del text[length:]
        assert (cache, trail.end) == (text, len(text))
    assert refused
    assert trail.dropped
    assert trail.read
