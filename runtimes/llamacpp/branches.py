"""Assigns sequences to the nodes of a branching pending tree.

llama.cpp has no trees, only sequences that share cells: a token sees the cells of its own sequence
at lower positions. So every leaf is a sequence, a node belongs to the sequences of all leaves below
it, and a branch that starts later takes over the cells of its path. Sequence 0 holds the committed
tokens. Copying the membership of many tokens costs more than a small pass, so the other sequences
keep the cells they share with it from one tree to the next and are updated when used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgedec.decoding.tree import TokenTree
from edgedec.errors import StateError
from edgedec.runtimes.llamacpp.context import Context

Members = list[list[int]]


@dataclass(slots=True)
class Mark:
    """State of the sequences before a pass.

    Attributes:
        used: number of sequences in use.
        pending: number of pending nodes.
        ends: leaves and their sequences.
        grown: sequences that were extended since, and the position at which each was extended.

    """

    used: int
    pending: int
    ends: dict[int, int]
    grown: dict[int, int] = field(default_factory=dict)


class Branches:
    """The sequences of one session.

    Args:
        most: largest number of sequences.

    """

    def __init__(self, most: int) -> None:
        self._held = [0] * most  # committed tokens that each sequence shares with the text
        self._used = 1
        self._ends: dict[int, int] = {}  # from a leaf to the sequence that ends with it
        self._via: list[int] = []  # a sequence through each pending node
        self.mark()

    @property
    def pending(self) -> bool:
        """True if pending nodes were placed, rather than computed as a chain."""
        return bool(self._via)

    # -- growing --------------------------------------------------------------------------------

    def place(
        self, context: Context, tree: TokenTree, start: int, end: int, length: int
    ) -> Members:
        """Return the sequences of ``nodes[start:end]``; new sequences already hold their path."""
        parents, depths = tree.parents, tree.depths
        if len(self._via) < start:  # the pending nodes are a chain in sequence 0
            self._via = [0] * start
            self._ends = {start - 1: 0}
        if start == 0:
            self._ends = {-1: 0}
        inner = set(parents[start:end])
        members: Members = [[] for _ in range(start, end)]
        for last in range(start, end):
            if last in inner:
                continue
            entry = last
            while parents[entry] >= start:
                entry = parents[entry]
            parent = parents[entry]
            sequence = self._ends.pop(parent, -1)
            if sequence < 0:
                sequence = self._fork(context, parent, length, depths[parent] + 1)
            else:
                position = length + depths[parent] + 1 if start else length
                self._mark.grown.setdefault(sequence, position)
            self._ends[last] = sequence
            node = last
            while node >= start:
                members[node - start].append(sequence)
                node = parents[node]
        self._via += [sequences[0] for sequences in members]
        return members

    def _fork(self, context: Context, parent: int, length: int, depth: int) -> int:
        """Return a new sequence with the committed tokens and the path to a pending node."""
        sequence = self._used
        if sequence == len(self._held):
            raise StateError(f"a tree of more than {sequence} branches: draft fewer nodes")
        self._used += 1
        self._catch_up(context, sequence, length)
        if parent >= 0:
            context.share(self._via[parent], sequence, length, length + depth)
        return sequence

    def _catch_up(self, context: Context, sequence: int, length: int) -> None:
        if self._held[sequence] < length:
            context.share(0, sequence, self._held[sequence], length)
            self._held[sequence] = length

    def mark(self) -> None:
        """Remember the sequences' state, for ``go_back``."""
        self._mark = Mark(self._used, len(self._via), dict(self._ends))

    def go_back(self, context: Context, length: int) -> None:
        """Undo a failed pass: remove what was written since ``mark``."""
        mark = self._mark
        for sequence in range(mark.used, self._used):
            context.remove(sequence, length)
        for sequence, position in mark.grown.items():
            if sequence < mark.used:
                context.remove(sequence, position)
        self._used, self._ends = mark.used, mark.ends
        del self._via[mark.pending :]

    # -- ending ---------------------------------------------------------------------------------

    def keep(self, context: Context, path: Sequence[int], length: int) -> None:
        """Keep the committed tokens and this path in sequence 0; drop the tree's other nodes."""
        winner = self._via[path[-1]] if path else 0
        end = length + len(path)
        for sequence in range(self._used):
            if sequence != winner:
                context.remove(sequence, length)
        context.remove(winner, end)
        if winner:
            context.share(winner, 0, length, end)
            self._held[winner] = end
        self.forget()

    def forget(self) -> None:
        """Forget the pending tree."""
        self._used = 1
        self._ends.clear()
        self._via.clear()

    def cut(self, length: int) -> None:
        """Truncate all sequences to ``length``."""
        self._held = [min(held, length) for held in self._held]
        self.forget()

    def hold(self, context: Context, length: int) -> None:
        """Add all cells of sequence 0 to another sequence, after a state was restored.

        llama.cpp never reuses cells of two sequences for new tokens, even when they have left a
        sliding window; after restoring a state it would otherwise start with the oldest ones.
        """
        self._catch_up(context, 1, length)
