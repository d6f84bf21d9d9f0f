"""Tokenises prompts within limits: a text that cannot fit the context is refused early."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgedec.decoding.sampling import SamplingParams
from edgedec.serve.errors import ApiError
from edgedec.text.chat import ChatTemplate
from edgedec.text.tokenizer import ChatTokens, Tokenizer

# A text of up to this many characters takes less than a millisecond.
SHORT = 4096
# Most memory that the library takes for a byte of a text.
_BYTES = 224
# Characters of a token that a first part of a long text is cut for.
_USUAL = 8
_LEAST_PART = 1 << 16
# Names of the tokens before a prefix, before a suffix, and before the text between them: those of
# Qwen2.5-Coder and CodeGemma, of StarCoder2 and Granite, and of DeepSeek-Coder.
_INFILL = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
)


class Prompts:
    """Prompts of one model.

    Args:
        context: of the model, in tokens.
        check: raises ApiError if this many bytes of memory are not free.
        most: tokens of a text; None is the context.
        sampling: of answers, where a request does not say; None is the API's.

    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        context: int,
        check: Callable[[int], None] = lambda needed: None,
        most: int | None = None,
        sampling: SamplingParams | None = None,
    ) -> None:
        self.tokenizer, self._context, self._check = tokenizer, context, check
        self._most = most or context
        self.sampling = sampling

    @property
    def template(self) -> ChatTemplate | None:
        """The model's chat template."""
        return self.tokenizer.chat_template

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text.

        The first part of a long text is tokenised by itself: where it alone makes twice as many
        tokens as there may be, what follows cannot make them few enough.

        Raises:
            ApiError: they are too many, or take more memory than there is.
            InputError: the text is not valid UTF-8.

        """
        if len(text) <= SHORT:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        longest = self.tokenizer.longest_token
        if longest is not None and len(text) > longest * self._most:
            raise self._too_long(f"more than {self._most}")
        part = max(_LEAST_PART, _USUAL * self._most)
        while part < len(text):
            if len(self._encoded(text[:part], add_special_tokens)) > 2 * self._most:
                raise self._too_long(f"more than {self._most}")
            part *= 4
        found = self._encoded(text, add_special_tokens)
        self.check(found)
        return found

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Return the tokens with which a model writes the text between two others.

        Raises:
            ApiError: as ``encode``, or the tokenizer has no tokens for it.
            InputError: likewise.

        """
        marks = infill_marks(self.tokenizer)
        if marks is None:
            raise ApiError(
                400,
                "suffix: this model has no fill-in-the-middle tokens: leave suffix out, or serve a"
                " model for code that has them, such as Qwen2.5-Coder or StarCoder2",
                param="suffix",
            )
        before, between, after = marks
        return self.encode(f"{before}{prefix}{between}{suffix}{after}")

    def decode(self, tokens: Sequence[int], field: str = "prompt") -> str:
        """Return the text of a field's tokens; ApiError if one is not a token."""
        self.check(tokens)
        if not all(0 <= token < self.tokenizer.vocab_size for token in tokens):
            raise ApiError(400, f"{field}: expected the model's token ids", param=field)
        return self.tokenizer.decode(tokens)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        **ending: bool | None,
    ) -> ChatTokens:
        """Return the tokens of a conversation; see ``Tokenizer.encode_chat`` and ``encode``."""
        text = self.tokenizer.render(messages, tools, variables, **ending)
        return ChatTokens(self.encode(text, add_special_tokens=False))

    def check(self, prompt: Sequence[int]) -> None:
        """Refuse tokens that are too many; ApiError if they are."""
        if len(prompt) > self._most:
            raise self._too_long(str(len(prompt)))

    def _encoded(self, text: str, add_special_tokens: bool) -> list[int]:
        self._check(_BYTES * len(text.encode("utf-8", "replace")))
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens, aside=True)

    def _too_long(self, tokens: str) -> ApiError:
        return ApiError(
            400,
            f"the prompt has {tokens} tokens and the context holds {self._context}: shorten it",
            param="messages",
            code="context_length_exceeded",
        )


def infill_marks(tokenizer: Tokenizer) -> tuple[str, str, str] | None:
    """Return the names of a tokenizer's fill-in-the-middle tokens; None if it has none."""
    for marks in _INFILL:
        if all(tokenizer.token_id(mark) is not None for mark in marks):
            return marks
    return None
