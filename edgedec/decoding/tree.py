"""Token trees, which a drafter proposes and a target verifies in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


class TokenTree:
    """Tokens with parents, in an order where every parent comes before its children.

    Node 0 is the root: the last emitted token, whose keys and values are not yet in the
    cache. Siblings keep the order in which they were added (the draw order that recursive
    rejection needs). A tree only ever grows, so a pending prefix stays valid.

    Attributes:
        is_chain: no node has two children, so that a causal mask is enough.

    """

    __slots__ = ("depths", "is_chain", "parents", "tokens")

    def __init__(self, root: int) -> None:
        self.tokens: list[int] = [root]
        self.parents: list[int] = [-1]
        self.depths: list[int] = [0]
        self.is_chain = True

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> TokenTree:
        """Return a tree without branches; ``tokens[0]`` is the root."""
        tree = cls(tokens[0])
        for token in tokens[1:]:
            tree.add(token, len(tree) - 1)
        return tree

    def add(self, token: int, parent: int) -> int:
        """Append a child of ``parent``; return the new node's index."""
        depths = self.depths
        node = len(depths)
        if not 0 <= parent < node:
            raise ValueError(f"parent {parent} is not a node of a tree of {node}")
        if parent != node - 1:
            self.is_chain = False
        self.tokens.append(token)
        self.parents.append(parent)
        depths.append(depths[parent] + 1)
        return node

    def under(self, tokens: Sequence[int]) -> TokenTree:
        """Return this tree below a chain of other tokens: node i becomes ``len(tokens) + i``.

        Itself if there are none; otherwise the two share nothing.
        """
        if not tokens:
            return self
        tree = TokenTree.chain([*tokens, self.tokens[0]])
        for node in range(1, len(self.tokens)):
            tree.add(self.tokens[node], self.parents[node] + len(tokens))
        return tree

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def leaves(self) -> int:
        """Number of nodes without children, the branches of the tree."""
        return len(self.parents) + 1 - len(set(self.parents))  # -1, the root's parent, not a node

    def children(self, node: int) -> list[int]:
        """Return child nodes in draw order."""
        return [i for i in range(node + 1, len(self.parents)) if self.parents[i] == node]

    def child(self, node: int, token: int) -> int | None:
        """Return the child of ``node`` that carries ``token``, if there is one."""
        parents, tokens = self.parents, self.tokens
        for i in range(node + 1, len(parents)):
            if parents[i] == node and tokens[i] == token:
                return i
        return None

    def path_to(self, node: int) -> list[int]:
        """Return node indices from the root to ``node``, both included."""
        path = []
        while node >= 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def tokens_on(self, path: Iterable[int]) -> list[int]:
        """Return the tokens of these nodes."""
        tokens = self.tokens
        return [tokens[i] for i in path]

    def is_path(self, path: Sequence[int]) -> bool:
        """Return whether ``path`` starts at the root and goes from parent to child."""
        above = -1
        for node in path:
            if not 0 <= node < len(self.tokens) or self.parents[node] != above:
                return False
            above = node
        return True


@dataclass(slots=True)
class Draft:
    """A proposed tree and how it was drawn, which the acceptance rules need.

    Attributes:
        tree: rooted at the last emitted token.
        q: for every node whose children were drawn from a distribution, that distribution after the
            sampler's own processing, ``[vocab]`` float32. Empty for deterministic drafters (prompt
            lookup, Token Recycling).
        passes: number of draft model passes it took.

    """

    tree: TokenTree
    q: dict[int, FloatArray] = field(default_factory=dict)
    source: str = ""
    passes: int = 0

    @property
    def drafted(self) -> int:
        """Number of drafted tokens: every node but the root."""
        return len(self.tree.tokens) - 1
