"""What the sampling of one request depends on: its text, parameters and random numbers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from edgedec.decoding.constraint import Constraint
from edgedec.decoding.params import SamplingParams
from edgedec.decoding.randomness import Streams
from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree
from edgedec.errors import InputError


class Occurrences:
    """Number of occurrences of each token, as parallel ids and counts for sparse updates."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._ids: IntArray = np.zeros(64, dtype=np.int64)
        self._counts: FloatArray = np.zeros(64, dtype=np.float32)

    def add(self, tokens: Sequence[int]) -> None:
        """Count these tokens."""
        for token in tokens:
            slot = self._slots.get(token)
            if slot is None:
                slot = self._slots[token] = len(self._slots)
                if slot == len(self._ids):
                    self._ids = np.resize(self._ids, 2 * slot)
                    self._counts = np.resize(self._counts, 2 * slot)
                self._ids[slot], self._counts[slot] = token, 0
            self._counts[slot] += 1

    def remove(self, tokens: Sequence[int]) -> None:
        """Undo ``add(tokens)``; last added, first removed."""
        for token in reversed(tokens):
            slot = self._slots[token]
            self._counts[slot] -= 1
            if self._counts[slot] == 0:
                del self._slots[token]

    @property
    def ids(self) -> IntArray:
        """Distinct tokens, ``[n]``; a view."""
        return self._ids[: len(self._slots)]

    @property
    def counts(self) -> FloatArray:
        """Their counts, ``[n]`` float32; a view."""
        return self._counts[: len(self._slots)]


class Penalties:
    """Logit bias and penalties of one request: bias first, penalties on the sum."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        self._repetition = np.float32(params.repetition_penalty)
        self._presence = np.float32(params.presence_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._bias_ids = np.array(list(params.logit_bias), dtype=np.int64)
        self._bias = np.array(list(params.logit_bias.values()), dtype=np.float32)
        self._active = params.penalised
        self._all = Occurrences()
        self._generated = Occurrences()
        if self._active:
            self._all.add(prompt)

    def push(self, tokens: Sequence[int]) -> None:
        """Add these tokens to the generated text."""
        if self._active:
            self._all.add(tokens)
            self._generated.add(tokens)

    def applied(self, logits: FloatArray, path: Sequence[int]) -> FloatArray:
        """Return a changed copy of a row, ``[vocab]``, as if ``path`` were already generated."""
        row: FloatArray = logits.copy()
        row[self._bias_ids] += self._bias
        if not self._active:
            return row
        self.push(path)
        if self._repetition != 1:
            ids = self._all.ids
            seen = row[ids]
            row[ids] = np.where(seen > 0, seen / self._repetition, seen * self._repetition)
        generated = self._generated
        row[generated.ids] -= self._presence + self._frequency * generated.counts
        self._all.remove(path)
        self._generated.remove(path)
        return row


class SamplingState:
    """The text so far and what is drawn from next; see ``Sampler`` for the drawing.

    Args:
        vocab_size: columns of a logits row.
        prompt: the tokens before the text; the last one is the first root.
        coupled: whether the draft draws with the target's own noise, see
            ``AcceptanceRule.coupled``.
        constraint: of the text after the prompt, which it follows from now on; None allows all.
        owner: whose text it is, for what drafters keep of it: it drafts for texts of the same owner
            only, and for none at all if there is no owner.

    Attributes:
        history: all tokens, prompt and text; the last one is the current root.
        streams: all random numbers of the request.
        want: outputs a pass must return for ``rows``.
        flat: rows that are expected to have no clear winner (see ``exponential_clocks.winner``).

    Raises:
        InputError: an empty prompt, or a token id outside the vocabulary.

    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        prompt: Sequence[int],
        *,
        coupled: bool = True,
        constraint: Constraint | None = None,
        owner: str | None = None,
    ) -> None:
        if not prompt:
            raise InputError("the prompt is empty: expected at least one token")
        _check_ids("prompt", prompt, vocab_size)
        _check_ids("logit_bias", params.logit_bias, vocab_size)
        self.params = params
        self.vocab_size = vocab_size
        self.history = list(prompt)
        seed = secrets.randbits(32) if params.seed is None else params.seed
        self.streams = Streams(seed, coupled=coupled)
        self.penalties = None
        if params.penalised or params.logit_bias:
            self.penalties = Penalties(params, prompt)
        self.constraint, self.owner = constraint, owner
        self.flat = 0
        # Whether rows differ from the model's by more than temperature and filters.
        self.shaped = self.penalties is not None or constraint is not None
        self.plain_greedy = params.greedy and not self.shaped
        self.want = Want.TOP if self.plain_greedy else Want.LOGITS
        self.inverse_temperature = np.float32(1 if params.greedy else 1 / params.temperature)

    def push(self, tokens: Sequence[int]) -> None:
        """Add these tokens to the text."""
        self.history += tokens
        if self.penalties is not None:
            self.penalties.push(tokens)
        if self.constraint is not None:
            self.constraint.push(tokens)

    def permits(self, tree: TokenTree, node: int, token: int) -> bool:
        """Return whether the constraint lets ``token`` follow a node of a tree below the text."""
        if self.constraint is None:
            return True
        return self.constraint.allows(tree.tokens_on(tree.path_to(node)[1:]), token)

    def forced(self, path: Sequence[int], most: int) -> list[int]:
        """Return the tokens that follow the text and ``path`` for certain, at most ``most``."""
        if self.constraint is None or most < 1:
            return []
        return self.constraint.forced(path, most)


def _check_ids(what: str, ids: Sequence[int] | dict[int, float], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InputError(f"{what}: token {token}: expected 0 to {vocab_size - 1}")
