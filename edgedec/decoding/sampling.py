"""From logits to the distribution a token is drawn from, row by row, on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgedec.decoding.randomness import Purpose
from edgedec.decoding.session import Pass, Want
from edgedec.decoding.tree import FloatArray, IntArray, TokenTree


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Checked on creation; errors are InputError.

    Order, as everywhere in the field: logit bias, repetition / presence / frequency
    penalties, temperature, top-k, top-p, min-p, draw.

    Attributes:
        temperature: 0 is greedy: the most likely token after bias and penalties.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of most likely tokens that holds this probability.
        min_p: keep tokens at least this times as likely as the most likely one.
        repetition_penalty: divides positive and multiplies negative logits of every token
            already in the prompt or the text (CTRL, 1909.05858, section 4.1); 1 is none.
        presence_penalty, frequency_penalty: subtracted once, and per occurrence, from the
            logits of tokens already in the generated text (not the prompt).
        logit_bias: added to the logits of these token ids.
        seed: of all random choices. None draws one, which is reported.

    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None


class Rows(Protocol):
    """The distributions after each node of a tree, each computed when first asked for.

    Row ``node`` is the distribution of the token that follows that node; penalties act on
    the node's own path.
    """

    def draw(self, node: int) -> int:
        """The token plain decoding emits after this node: argmax of log p + noise."""
        ...

    def probs(self, node: int) -> FloatArray:
        """The processed distribution, ``[vocab]`` float32; greedy is one-hot."""
        ...

    def best(self, node: int, count: int) -> IntArray:
        """The ``count`` best tokens of log p + noise, best first (Gumbel-top-k).

        Greedy: the most likely ones. Fewer when fewer tokens have any probability.
        """
        ...

    def entropy(self, node: int) -> float:
        """Entropy in nats of the model's own distribution at temperature 1."""
        ...

    def confidence(self, node: int) -> float:
        """Largest probability of the model's own distribution at temperature 1."""
        ...


class Sampler(Protocol):
    """The sampling state of one request, shared by target and draft."""

    params: SamplingParams
    history: list[int]

    @property
    def want(self) -> Want:
        """What a pass must bring back for ``rows``."""
        ...

    def push(self, tokens: Sequence[int]) -> None:
        """These tokens are now part of the text."""
        ...

    def rows(self, scored: Pass, tree: TokenTree, purpose: Purpose) -> Rows:
        """Rows over a pass; a node of depth d predicts position ``len(history) + d``."""
        ...
