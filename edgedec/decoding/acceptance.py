"""Which drafted tokens the target keeps: the protocol and its verdict.

A rule is pure: it reads the rows it visits and the random streams, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.tree import Draft


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided.

    Attributes:
        path: nodes that stay, root first; ``len(path) - 1`` drafted tokens are accepted.
        next_token: the token after them: the bonus token when the path ends at a leaf,
            the recovered token otherwise.

    """

    path: list[int]
    next_token: int

    @property
    def accepted(self) -> int:
        """Accepted drafted tokens."""
        return len(self.path) - 1


class AcceptanceRule(Protocol):
    """Walks down the tree and decides.

    Attributes:
        name: for reports and the command line.
        lossless: the text has the target's own distribution.
        coupled: the draft must draw with the target's noise (see ``Streams``).

    """

    name: str
    lossless: bool
    coupled: bool

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        """The accepted path and the token after it."""
        ...
