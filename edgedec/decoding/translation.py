"""Maps between the vocabularies of a target and a draft model that do not share one.

Token-level intersection (TLI, 2502.05202, section 3.3): tokens with the same bytes are the
same token; the draft's distribution is restricted to them and renormalised, which a softmax
does by itself if the other columns are ``-inf``.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from edgedec.decoding.tree import FloatArray, IntArray

OUTSIDE = -1


class Speller(Protocol):
    """Converts text between the tokens of two vocabularies."""

    def spell(self, tokens: Sequence[int], *, first: bool) -> tuple[list[int], list[int]]:
        """Return the target's tokens in the draft's tokenisation, and where each one ends.

        Args:
            first: the text begins with them; otherwise they continue a text, from a word start.

        Returns:
            The draft's ids, and for every target token how many of them spell the text up to its
            end; ``OUTSIDE`` if that lies inside a draft token.

        """
        ...

    def write(self, tokens: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """Return the text of the draft tokens ``drafted`` after ``tokens``, in target tokens."""
        ...


class Literal:
    """A speller without tokenizers: common tokens one by one, ``blank`` for each of the others."""

    def __init__(self, to_draft: IntArray, to_target: IntArray, blank: int) -> None:
        self._to_draft = np.where(to_draft == OUTSIDE, blank, to_draft).tolist()
        self._to_target = to_target.tolist()

    def spell(self, tokens: Sequence[int], *, first: bool) -> tuple[list[int], list[int]]:
        return [self._to_draft[token] for token in tokens], [*range(1, len(tokens) + 1)]

    def write(self, tokens: Sequence[int], drafted: Sequence[int]) -> list[int]:
        ids = [self._to_target[token] for token in drafted]
        return ids[: ids.index(OUTSIDE)] if OUTSIDE in ids else ids


@dataclass(frozen=True)
class Translation:
    """The mapping from a target's vocabulary to a draft's and back.

    Attributes:
        to_draft: for every column of the target the draft's id of the token with the same bytes,
            ``[target columns]``; ``OUTSIDE`` if there is none. Several target tokens may have the
            same bytes and so the same id.
        target_ids, draft_ids: the one-to-one pairs by which the draft's logits are mapped,
            ascending in ``target_ids``; ``[common]`` each.
        draft_columns: columns of a logits row of the draft.
        speller: between the tokenizers, for tokens outside the pairs.
        word_starts: target tokens before which a text may be split without changing how the rest
            is tokenised, ``[target columns]`` bool.
        blank: a token of the draft without any text.
        same: both tokenizers are the same, up to padding and added special tokens.
        level: ``"token"`` or ``"string"``: how ``hybrid`` drafts.
        facts: shares and counts for reports.

    """

    to_draft: IntArray
    target_ids: IntArray
    draft_ids: IntArray
    draft_columns: int
    speller: Speller
    word_starts: Sequence[bool]
    blank: int = 0
    same: bool = False
    level: str = "token"
    facts: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_ids(cls, to_draft: Sequence[int], draft_columns: int, *, blank: int = 0) -> Translation:
        """Return a translation from a map of ids; of equal draft ids the first one counts."""
        there = np.asarray(to_draft, dtype=np.int64)
        target_ids, draft_ids = one_to_one(there)
        to_target = np.full(draft_columns, OUTSIDE, dtype=np.int64)
        to_target[draft_ids] = target_ids
        literal = Literal(there, to_target, blank)
        starts = [True] * len(there)
        return cls(there, target_ids, draft_ids, draft_columns, literal, starts, blank)

    @property
    def target_columns(self) -> int:
        """Columns of a logits row of the target."""
        return len(self.to_draft)

    @property
    def untouched(self) -> bool:
        """True if nothing needs translation: a draft's row is a row of the target."""
        return self.same and self.target_columns == self.draft_columns

    def common(self, tokens: Sequence[int]) -> float:
        """Return the share of these target tokens that are in the draft's vocabulary as well."""
        return float(np.mean(self.to_draft[list(tokens)] != OUTSIDE)) if len(tokens) else 1.0

    @functools.cached_property
    def to_target(self) -> IntArray:
        """The target token of every column of the draft, or ``OUTSIDE``."""
        back = np.full(self.draft_columns, OUTSIDE, dtype=np.int64)
        back[self.draft_ids] = self.target_ids
        return back

    @functools.cached_property
    def columns(self) -> tuple[IntArray, FloatArray]:
        """The draft column for each target column, and a mask of 0, or ``-inf`` if it has none."""
        source = np.zeros(self.target_columns, dtype=np.int64)
        source[self.target_ids] = self.draft_ids
        mask = np.full(self.target_columns, -np.inf, dtype=np.float32)
        mask[self.target_ids] = 0
        return source, mask

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the pairs; a saved session is valid for one translation only."""
        data = np.concatenate([self.to_draft, self.draft_ids]).tobytes()
        return hashlib.sha256(data).hexdigest()[:16]


def one_to_one(to_draft: IntArray) -> tuple[IntArray, IntArray]:
    """Return pairs (target id, draft id), each draft id once, with its lowest target id."""
    ids = np.flatnonzero(to_draft != OUTSIDE)
    _, first = np.unique(to_draft[ids], return_index=True)
    kept = np.sort(ids[first])
    return kept, to_draft[kept]
