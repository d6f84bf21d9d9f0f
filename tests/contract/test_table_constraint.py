"""The constraint contract holds for the table that other tests use, and notices broken ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from edgedec.decoding.constraint import BoolArray
from edgedec.testing import ConstraintContract, TableConstraint

VOCAB, EOS = 12, 11
# Lists of items between brackets: 0 is "[", 1 "]", 2 ","; 3 to 8 begin an item, 9 ends it.
TABLE = {
    0: {0: 1},
    1: dict.fromkeys(range(3, 9), 2),
    2: {9: 3},
    3: {2: 1, 1: 4},
    4: {EOS: 5, 0: 1},
}


class TestTable(ConstraintContract):
    EOS = EOS

    @pytest.fixture
    def make(self) -> Callable[[], TableConstraint]:
        return lambda: TableConstraint(TABLE, VOCAB)


class LooksAtTheParent(TableConstraint):
    """The mask of the parent is used for the child."""

    def allowed(self, path: Sequence[int]) -> BoolArray | None:
        return super().allowed(path[:-1])


class LeavesATrace(TableConstraint):
    """Looking at a path moves there."""

    def allowed(self, path: Sequence[int]) -> BoolArray | None:
        found = super().allowed(path)
        if found is not None:
            self.push(path)
        return found


class ForcesAChoice(TableConstraint):
    """The first of two choices counts as forced."""

    def forced(self, path: Sequence[int], most: int) -> list[int]:
        mask = super().allowed(path)
        return [] if mask is None else [int(mask.argmax())]


class SharesItsState(TableConstraint):
    def twin(self) -> TableConstraint:
        return self


@pytest.mark.parametrize("broken", [LooksAtTheParent, LeavesATrace, ForcesAChoice, SharesItsState])
def test_the_contract_notices(broken: type[TableConstraint]) -> None:
    contract = TestTable()
    tests = [name for name in dir(contract) if name.startswith("test_")]
    failed = 0
    for name in tests:
        try:
            getattr(contract, name)(lambda: broken(TABLE, VOCAB))
        except AssertionError:
            failed += 1
    assert failed
