"""The sampling state of one request, shared by target and draft."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence

import numpy as np

from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling.params import SamplingParams
from edgedec.decoding.sampling.penalties import Penalties
from edgedec.decoding.sampling.rows import Rows
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import InputError


class Sampler:
    """State for turning passes into tokens, for one text.

    Args:
        params: what the user asked for.
        vocab_size: columns of a logits row.
        prompt: the tokens before the text; the last one is the first root.
        coupled: whether the draft draws with the target's own noise, see
            ``AcceptanceRule.coupled``.

    Attributes:
        history: all tokens, prompt and text; the last one is the current root.
        streams: all random numbers of the request.

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
        self.plain_greedy = params.greedy and self.penalties is None
        self.inverse_temperature = np.float32(1 if params.greedy else 1 / params.temperature)

    def twin(self) -> Sampler:
        """Return a sampler of the same seed and text so far, which counts as its prompt.

        The two share no mutable state, so another thread may draw with it.
        """
        params = dataclasses.replace(self.params, seed=self.streams.seed)
        return Sampler(params, self.vocab_size, self.history, coupled=self.streams.coupled)

    @property
    def want(self) -> Want:
        """Outputs a pass must return for ``rows``."""
        return Want.TOP if self.plain_greedy else Want.LOGITS

    def push(self, tokens: Sequence[int]) -> None:
        """Add these tokens to the text."""
        self.history += tokens
        if self.penalties is not None:
            self.penalties.push(tokens)

    def rows(self, scored: Pass, tree: TokenTree, purpose: Purpose) -> Rows:
        """Return rows over a pass; a node of depth d predicts position ``len(history) + d``."""
        return Rows(self, scored, tree, purpose)


def _check_ids(what: str, ids: Sequence[int] | dict[int, float], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InputError(f"{what}: token {token}: expected 0 to {vocab_size - 1}")
