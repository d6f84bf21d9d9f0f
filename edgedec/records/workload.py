"""The workload that a plan is made for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from edgedec.errors import InputError

# A rate is measured after the first token, so it needs another; shorter contexts are not worth a
# plan.
LEAST_NEW_TOKENS, LEAST_CONTEXT = 2, 16
_MOST_TOKENS = 10**9


@dataclass(frozen=True, slots=True)
class Workload:
    """A typical request.

    Attributes:
        prompt_tokens: of its prompt.
        new_tokens: new tokens; 2 or more.
        temperature: 0 is greedy.
        max_context: most tokens of a text with its prompt, 16 or more; None leaves it to the
            planner: the model's own limit, or less if memory requires.

    Raises:
        InputError: one of them is invalid.

    """

    prompt_tokens: int = 256
    new_tokens: int = 128
    temperature: float = 0.0
    max_context: int | None = None

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
