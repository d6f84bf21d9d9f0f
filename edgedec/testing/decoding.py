"""Decodes a text with the real loop, for tests of drafters, rules and runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgedec.decoding.emission import Emission
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.stopping import StopRule


class Letters:
    """A detokenizer in which token 0 is ``a``, 1 is ``b`` and so on."""

    def push(self, token: int) -> str:
        """Return the letter of a token."""
        return chr(ord("a") + token)

    def flush(self) -> str:
        """Return "": nothing is held back."""
        return ""


@dataclass
class Outcome:
    """Everything a reader sees, which must not depend on the drafter.

    Attributes:
        events: emitted tokens, without the name of the drafter that proposed them.
        text: all of it.
        reason: why it ended.

    """

    events: list[Emission]
    text: str
    reason: str | None

    @property
    def tokens(self) -> list[int]:
        """The emitted tokens."""
        return [event.token for event in self.events]


def request(
    params: SamplingParams,
    vocab_size: int,
    prompt: Sequence[int],
    *,
    coupled: bool = True,
    logprobs: int | None = None,
    **stop: Any,
) -> Request:
    """Return a request of 60 tokens whose text is letters; ``stop`` changes its ``StopRule``."""
    rules = {"eos_ids": (), "max_new_tokens": 60, "stream": Letters(), **stop}
    sampler = Sampler(params, vocab_size, prompt, coupled=coupled)
    return Request(prompt, sampler, StopRule(**rules), logprobs=logprobs)


def decode(engine: Engine, asked: Request, metrics: Metrics | None = None) -> Outcome:
    """Run a request to its end; records figures in ``metrics``."""
    rounds = engine.run(asked, Metrics() if metrics is None else metrics)
    events = [event._replace(source="") for block in rounds for event in block]
    return Outcome(events, asked.stop.finish(), asked.stop.reason)
