"""The result of a generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from edgedec.decoding.drafting import PLAIN
from edgedec.decoding.emission import Emission
from edgedec.decoding.metrics import Metrics

# Characters of the text in ``repr``.
_SHOWN = 60
# How a text is decoded: drafter, draft length, threads and so on, as ``--json`` prints it.
Setup = dict[str, Any]


class ScoredToken(NamedTuple):
    """A token with its log probability.

    Attributes:
        token: its id.
        text: as the tokenizer writes it; U+FFFD where it is a part of a character.
        logprob: log p under the target's own distribution.
        alternatives: the most likely tokens at its place, best first, itself among them if it is
            one; empty with ``logprobs=0``, and of an alternative.

    """

    token: int
    text: str
    logprob: float
    alternatives: tuple[ScoredToken, ...] = ()

    def __repr__(self) -> str:
        """Return a line such as ``<' Paris' -0.31: ' Paris' -0.31, ' the' -2.65>``."""
        best = ", ".join(f"{one.text!r} {one.logprob:.2f}" for one in self.alternatives)
        return f"<{self.text!r} {self.logprob:.2f}{f': {best}' if best else ''}>"


def scored(events: Sequence[Emission], text: Callable[[int], str]) -> list[ScoredToken]:
    """Return the tokens of events that have log probabilities, given what writes a token."""
    found = []
    for event in events:
        if event.logprob is not None:
            best = tuple(ScoredToken(one, text(one), p) for one, p in event.top_logprobs or ())
            found.append(ScoredToken(event.token, text(event.token), event.logprob, best))
    return found


@dataclass(frozen=True, slots=True, repr=False)
class Generation:
    """The result of a generation. Printed, it is its text and one line of figures.

    Attributes:
        text: the generated text, without any stop string; of an answer to messages, without the
            thinking before it.
        events: every emitted token with its text, source and logprobs.
        prompt_tokens: number of tokens of the prompt.
        finish_reason: ``eos``, ``length``, ``stop``, ``timeout`` or ``cancelled``.
        metrics: see ``edgedec.decoding.metrics``.
        seed: the random seed, given or drawn.
        plan: how it was decoded: drafter, draft length, threads, provider and so on.
        thinking: the text of the thinking before an answer to messages; empty if there was none.
        tokens: with ``logprobs``, every emitted token with its text, log probability and the most
            likely ones at its place; None without.
    """

    text: str
    events: list[Emission]
    prompt_tokens: int
    finish_reason: str
    metrics: Metrics
    seed: int
    plan: Setup
    thinking: str = ""
    tokens: list[ScoredToken] | None = None

    @property
    def thinking_tokens(self) -> int:
        """Number of the tokens that are thinking, with its marks."""
        return sum(event.thinking is not None for event in self.events) if self.thinking else 0

    @property
    def token_ids(self) -> list[int]:
        """Ids of the emitted tokens."""
        return [event.token for event in self.events]

    @property
    def logprobs(self) -> list[float] | None:
        """Log probabilities of the emitted tokens; None unless ``logprobs`` was asked for."""
        found = [event.logprob for event in self.events if event.logprob is not None]
        return found if len(found) == len(self.events) else None

    @property
    def figures(self) -> str:
        """One line: tokens, time, speed-up over plain decoding if it can be told, and the end."""
        from edgedec.generation.figures import line  # for those who look at them

        cut = self.thinking and not self.text
        reason = f"{self.finish_reason}, while thinking" if cut else self.finish_reason
        return line(self.metrics, self.plan, reason)

    def __str__(self) -> str:
        return f"{self.text}\n[{self.figures}]"

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."
        return f"<Generation {shown!r}: {self.figures}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from edgedec.generation.figures import as_html

        return as_html(self.text, self.figures)


def setup_of(opened: Setup, drafter: str | None, draft_length: int | None) -> Setup:
    """Return the setup of one generation, which may have its own drafter and draft length.

    Args:
        opened: the setup of the pipeline.
        drafter, draft_length: as ``GenerateOptions`` has them.

    """
    if opened["drafter"] == PLAIN or (drafter is None and draft_length is None):
        return opened
    if drafter == PLAIN or draft_length == 0:
        return {**opened, "drafter": PLAIN, "draft_length": 0, "policy": "fixed"}
    named = {} if drafter is None else {"drafter": drafter}
    length = {} if draft_length is None else {"draft_length": draft_length, "policy": "fixed"}
    return {**opened, **named, **length}
