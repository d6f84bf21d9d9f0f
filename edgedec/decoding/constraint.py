"""The protocol of a constraint (a grammar) on one generation, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]


class Constraint(Protocol):
    """A grammar's state in one generated text. The prompt is not part of the text.

    A ``path`` is a sequence of tokens that may follow the text so far, as the nodes of a drafted
    tree do. What a method returns depends on the text and the path alone, not on earlier calls. An
    end-of-text token is allowed where the grammar accepts; a path may go on after it.
    """

    def allowed(self, path: Sequence[int]) -> BoolArray | None:
        """Return which tokens may follow ``path``, ``[vocab]`` bool, read-only; at least one may.

        None if every token may, or if the path itself is refused or ends the text, so that what
        follows does not matter.

        Raises:
            InputError: no token may follow, or the grammar needs more than its limits.

        """
        ...

    def allows(self, path: Sequence[int], token: int) -> bool:
        """Return whether ``token`` may follow ``path``; quicker than ``allowed``."""
        ...

    def forced(self, path: Sequence[int], most: int) -> list[int]:
        """Return the tokens that follow ``path`` because nothing else may, at most ``most``.

        Where a token is forced, ``allowed`` holds for it alone.
        """
        ...

    def push(self, tokens: Sequence[int]) -> None:
        """Add these tokens to the text; they are allowed."""
        ...

    def twin(self) -> Constraint:
        """Return a constraint in the same state, which another thread may use."""
        ...
