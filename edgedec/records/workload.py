"""The workload that a plan is made for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgedec._support.options import described, option
from edgedec.errors import InputError

# A rate is measured after the first token, so it needs another; shorter contexts are not worth a
# plan.
LEAST_NEW_TOKENS, LEAST_CONTEXT = 2, 16
_MOST_TOKENS = 10**9


@described
@dataclass(frozen=True, slots=True)
class Workload:
    """A typical request.

    Raises:
        InputError: one of them is invalid.

    """

    # fmt: off
    prompt_tokens: int = option(
        256, "Tokens of a typical prompt.", metavar="N", least=1, shows=True,
    )
    new_tokens: int = option(
        128, "Tokens of a typical output.", metavar="N", least=LEAST_NEW_TOKENS, shows=True,
    )
    temperature: float = option(0.0, "Sampling temperature; 0 is greedy.", least=0, shows=True)
    max_context: int | None = option(
        None, "Most tokens of prompt and output together; default: the model's limit, or as many as"
        " fit in memory.", metavar="TOKENS", least=LEAST_CONTEXT,
    )
    # fmt: on

    def __post_init__(self) -> None:
        if not 1 <= self.prompt_tokens <= _MOST_TOKENS:
            raise InputError(
                f"prompts of {self.prompt_tokens} tokens: expected 1 to {_MOST_TOKENS}"
            )
        if not LEAST_NEW_TOKENS <= self.new_tokens <= _MOST_TOKENS:
            raise InputError(
                f"texts of {self.new_tokens} new tokens: expected {LEAST_NEW_TOKENS} to"
                f" {_MOST_TOKENS}, since tokens/s are counted after the first"
            )
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise InputError(f"temperature is {self.temperature}: expected 0 or more")
        if self.max_context is None:
            return
        if not LEAST_CONTEXT <= self.max_context <= _MOST_TOKENS:
            raise InputError(
                f"--max-context {self.max_context}: expected {LEAST_CONTEXT} to {_MOST_TOKENS}"
            )
        if self.max_context < self.tokens:
            raise InputError(
                f"--max-context {self.max_context}: the prompt and the text have {self.tokens}"
                " tokens together: raise it, or plan for shorter ones"
            )

    @property
    def tokens(self) -> int:
        """Tokens of prompt and text together."""
        return self.prompt_tokens + self.new_tokens

    @property
    def middle(self) -> int:
        """Tokens in the cache midway through the text, where a pass takes its mean time."""
        return self.prompt_tokens + self.new_tokens // 2
