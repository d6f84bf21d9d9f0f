"""What the sampling of one request depends on: its text, parameters and random numbers."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np

from edgedec.decoding.constraint import Constraint
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling.params import SamplingParams
from edgedec.decoding.sampling.penalties import Penalties
from edgedec.decoding.session import Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError


class SamplingState:
    """The text so far and what is drawn from next; see ``Sampler`` for the drawing.

    Args:
        params: what the user asked for.
        vocab_size: columns of a logits row.
        prompt: the tokens before the text; the last one is the first root.
        coupled: whether the draft draws with the target's own noise, see
            ``AcceptanceRule.coupled``.
        constraint: of the text after the prompt, which it follows from now on; None allows all.

    Attributes:
        history: all tokens, prompt and text; the last one is the current root.
        streams: all random numbers of the request.
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
        self.constraint = constraint
        self.flat = 0
        # Whether rows differ from the model's by more than temperature and filters.
        self.shaped = self.penalties is not None or constraint is not None
        self.plain_greedy = params.greedy and self.penalties is None and constraint is None
        self.inverse_temperature = np.float32(1 if params.greedy else 1 / params.temperature)

    @property
    def want(self) -> Want:
        """Outputs a pass must return for ``rows``."""
        return Want.TOP if self.plain_greedy else Want.LOGITS

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
