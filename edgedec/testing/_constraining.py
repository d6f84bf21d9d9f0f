"""The constraint contract, as tests that any grammar inherits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedec.decoding.constraint import BoolArray, Constraint

Made = Callable[[], Constraint]


class ConstraintContract:
    """Base class of a constraint's tests: give a ``make`` fixture and the end-of-text token.

    ``make`` returns a new constraint whose texts are longer than ``STEPS`` tokens and which forces
    a token somewhere.
    """

    STEPS = 12
    EOS: int

    def mask(self, constraint: Constraint, path: Sequence[int] = ()) -> BoolArray:
        """Return what may follow an allowed path."""
        mask = constraint.allowed(path)
        assert mask is not None, f"{list(path)} is refused"
        return mask

    def walk(self, constraint: Constraint, seed: int) -> list[int]:
        """Return a random path that is allowed and does not end the text."""
        rng, path = np.random.default_rng(seed), list[int]()
        for _ in range(self.STEPS):
            mask = self.mask(constraint, path)
            choices = [token for token in np.flatnonzero(mask).tolist() if token != self.EOS]
            if not choices:
                break
            path.append(int(rng.choice(choices)))
        return path

    def test_a_path_is_looked_at_without_a_trace(self, make: Made) -> None:
        for seed in range(8):
            constraint, before = make(), self.mask(make())
            path = self.walk(constraint, seed)
            assert np.array_equal(self.mask(constraint), before)
            again = make()
            for end in reversed(range(len(path) + 1)):
                there = self.mask(again, path[:end])
                assert np.array_equal(there, self.mask(constraint, path[:end]))

    def test_what_is_pushed_is_as_what_is_looked_at(self, make: Made) -> None:
        for seed in range(8):
            looking, pushed = make(), make()
            path = self.walk(looking, seed)
            for index, token in enumerate(path):
                assert np.array_equal(self.mask(pushed), self.mask(looking, path[:index]))
                assert pushed.forced([], 3) == looking.forced(path[:index], 3)
                pushed.push([token])
            assert np.array_equal(self.mask(pushed), self.mask(looking, path))

    def test_a_refused_path_allows_nothing_and_forces_nothing(self, make: Made) -> None:
        constraint = make()
        for seed in range(8):
            path = self.walk(constraint, seed)
            mask = self.mask(constraint, path)
            for token in np.flatnonzero(~mask)[:5].tolist():
                assert not constraint.allows(path, token)
                assert constraint.allowed([*path, token]) is None
                assert constraint.forced([*path, token], 3) == []

    def test_allows_says_what_the_mask_says(self, make: Made) -> None:
        constraint = make()
        path = self.walk(constraint, 1)
        for end in range(len(path) + 1):
            mask = self.mask(constraint, path[:end])
            sample = [*np.flatnonzero(mask)[:20].tolist(), *np.flatnonzero(~mask)[:20].tolist()]
            for token in sample:
                assert constraint.allows(path[:end], token) == mask[token]

    def test_forced_tokens_are_the_only_ones_allowed(self, make: Made) -> None:
        constraint, forced = make(), 0
        for seed in range(8):
            path = self.walk(constraint, seed)
            for end in range(len(path) + 1):
                found = constraint.forced(path[:end], 4)
                assert found[:1] == constraint.forced(path[:end], 1)
                for index, token in enumerate(found):
                    mask = self.mask(constraint, [*path[:end], *found[:index]])
                    assert np.flatnonzero(mask).tolist() == [token]
                forced += len(found)
        assert forced, "nothing is forced: the test says nothing"

    def test_what_is_not_forced_is_a_choice(self, make: Made) -> None:
        constraint = make()
        for seed in range(8):
            path = self.walk(constraint, seed)
            for end in range(len(path) + 1):
                mask = self.mask(constraint, path[:end])
                assert (mask.sum() == 1) == bool(constraint.forced(path[:end], 1))

    def test_a_twin_goes_its_own_way(self, make: Made) -> None:
        first = make()
        path = self.walk(first, 2)
        first.push(path[:4])
        second = first.twin()
        before = self.mask(second)
        assert np.array_equal(before, self.mask(first))
        first.push(path[4:])
        assert np.array_equal(self.mask(second), before)
        second.push(path[4:])
        assert np.array_equal(self.mask(second), self.mask(first))
