"""What is to be decoded, as far as a plan depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from edgedec.errors import InputError


@dataclass(frozen=True, slots=True)
class Workload:
    """A typical request.

    Attributes:
        prompt_tokens: of its prompt.
        new_tokens: that are written.
        temperature: 0 is greedy.
        max_context: tokens that a text may have with its prompt; None leaves it to the
            planner: the model's own limit, or less where memory does not hold it.

    """

    prompt_tokens: int = 256
    new_tokens: int = 128
    temperature: float = 0.0
    max_context: int | None = None

    def __post_init__(self) -> None:
        if min(self.prompt_tokens, self.new_tokens) < 1:
            raise InputError(
                f"a workload of {self.prompt_tokens} + {self.new_tokens} tokens: expected 1 or"
                " more of each"
            )
        if self.temperature < 0:
            raise InputError(f"temperature is {self.temperature}: expected 0 or more")
        if self.max_context is not None and self.max_context < self.tokens:
            raise InputError(
                f"--max-context {self.max_context}: the prompt and the text have {self.tokens}"
                " tokens together: raise it, or plan for shorter ones"
            )

    @property
    def tokens(self) -> int:
        """Of prompt and text together."""
        return self.prompt_tokens + self.new_tokens

    @property
    def middle(self) -> int:
        """Tokens in the cache half-way through the text: where a pass takes its mean time."""
        return self.prompt_tokens + self.new_tokens // 2
