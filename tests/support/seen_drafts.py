"""Every draft that a head made, to compare it with what formulas draft there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pytest

from edgedec.decoding.drafting.head import HeadDrafter
from edgedec.decoding.tree import Draft


class Drafting(Protocol):
    def draft(self, tokens: Sequence[int], root: int, length: int) -> list[int]: ...


class Seen:
    """Every draft of a generation: the tokens before its root, the root, and what was drafted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drafts: list[tuple[list[int], int, list[int]]] = []
        propose = HeadDrafter.propose

        def watched(drafter: HeadDrafter, root: int, *given: object) -> Draft:
            draft = propose(drafter, root, *given)  # type: ignore[arg-type]
            before = drafter._head._history()[:-1]
            self.drafts.append((list(before), root, list(draft.tree.tokens)[1:]))
            return draft

        monkeypatch.setattr(HeadDrafter, "propose", watched)

    def wrong(self, formulas: Drafting) -> list[Sequence[int]]:
        """The drafts that the formulas do not make."""
        return [
            drafted
            for before, root, drafted in self.drafts
            if drafted != formulas.draft(before, root, len(drafted))
        ]
