"""What a text continues: a text, token ids, or a conversation for the chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgedec.errors import InputError
from edgedec.generation.options import Message, Prompt, token_ids
from edgedec.text.tokenizer import Tokenizer


def tokens_of(
    tokenizer: Tokenizer,
    prompt: Prompt | None,
    messages: Sequence[Message] | None,
    system: str | None,
) -> list[int]:
    """Return the tokens to continue.

    Args:
        tokenizer: of the target.
        prompt: a text, or its token ids; with ``system``, a text that is the user's message.
        messages: a conversation instead of the prompt.
        system: a message that precedes them.

    Raises:
        InputError: not one of prompt and messages, no chat template, or messages that do not fit.

    """
    if messages is not None:
        if prompt is not None:
            raise InputError("the prompt and messages exclude each other: leave one of them out")
        return tokenizer.encode_chat(_with(system, messages))
    if prompt is None:
        raise InputError("no prompt: expected text or a sequence of token ids, or messages")
    if system is None:
        return tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
    if not isinstance(prompt, str):
        raise InputError("system goes with messages, or with a prompt that is a text")
    return tokenizer.encode_chat(_with(system, [{"role": "user", "content": prompt}]))


def _with(system: str | None, messages: Any) -> Any:
    """Return the messages after a system message."""
    if system is None:
        return messages
    if not isinstance(system, str):
        raise InputError(f"system is {system!r:.60}: expected a text")
    if not isinstance(messages, (list, tuple)):  # refused with the template
        return messages
    if messages and isinstance(messages[0], Mapping) and messages[0].get("role") == "system":
        raise InputError("the messages already begin with a system message: leave system out")
    return [{"role": "system", "content": system}, *messages]
