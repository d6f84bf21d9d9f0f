"""What a text continues: a text, token ids, or a conversation for the chat template.

What follows a conversation is an answer, whose thinking is kept apart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from edgedec.errors import InputError
from edgedec.generation.options import GenerateOptions, Message, Prompt, token_ids
from edgedec.text.tokenizer import ChatTokens, Tokenizer

_log = logging.getLogger("edgedec")


def tokens_of(
    tokenizer: Tokenizer,
    prompt: Prompt | None,
    messages: Sequence[Message] | None,
    system: str | None,
    options: GenerateOptions,
) -> list[int]:
    """Return the tokens to continue; ``ChatTokens`` of a conversation.

    Args:
        prompt: a text, or its token ids; with ``system``, a text that is the user's message.
        messages: a conversation instead of the prompt.
        system: a message that precedes them.
        options: say how to think before an answer.

    Raises:
        InputError: not one of prompt and messages, no chat template, messages that do not fit, or
            thinking that the template does not have.

    """
    if messages is None and prompt is None:
        raise InputError("no prompt: expected text or a sequence of token ids, or messages")
    if messages is not None and prompt is not None:
        raise InputError("the prompt and messages exclude each other: leave one of them out")
    if messages is None and system is None:
        if isinstance(prompt, ChatTokens):
            return prompt
        _check_one(prompt)
        _check_no_thinking(options)
        assert prompt is not None, "refused above"
        return tokenizer.encode(prompt) if isinstance(prompt, str) else token_ids(prompt)
    if messages is None:
        if not isinstance(prompt, str):
            raise InputError("system goes with messages, or with a prompt that is a text")
        messages = [{"role": "user", "content": prompt}]
    _check_thinking(tokenizer, options)
    variables = template_variables(tokenizer, options)
    return tokenizer.encode_chat(_with(system, messages), variables=variables)


def template_variables(tokenizer: Tokenizer, options: GenerateOptions) -> dict[str, Any]:
    """Return the chat template's variables that these options ask for.

    Where thinking cannot be told from an answer token by token, a grammar switches it off.
    """
    from edgedec.text.chat import thinking
    from edgedec.text.thinking import marks_of

    think, marks = options.think, marks_of(tokenizer)
    if marks is not None and not marks.ids and options.constraint is not None:
        if think is not False:
            _log.warning("thinking is off: this model spells its marks, and a grammar would"
                         " apply to the thinking as well")  # fmt: skip
        think = False
    return thinking(think, options.reasoning_effort)


def answers(prompt: Prompt | None, messages: object, system: str | None) -> bool:
    """Return whether what follows is an answer, not the continuation of a text."""
    return messages is not None or system is not None or isinstance(prompt, ChatTokens)


def is_no_chat(tokenizer: Tokenizer, tokens: Sequence[int]) -> bool:
    """Return whether a chat model continues these tokens as text, with no mark of its template."""
    if tokenizer.chat_template is None or isinstance(tokens, ChatTokens):
        return False
    return tokenizer.special_ids.isdisjoint(tokens[1:])  # the first one may begin every text


def _check_no_thinking(options: GenerateOptions) -> None:
    for name in ("think", "think_tokens", "reasoning_effort"):
        if getattr(options, name) is not None:
            raise InputError(f"{name} goes with messages: a prompt is continued as text")


def _check_one(prompt: object) -> None:
    """Refuse several prompts, and say how they are generated."""
    if isinstance(prompt, (list, tuple)) and any(isinstance(one, (str, list)) for one in prompt):
        raise InputError(
            "the prompt is a list of prompts: expected one; for several, call generate() for each"
            " in a loop, or `edgedec generate MODEL --prompts FILE.jsonl`"
        )


def _check_thinking(tokenizer: Tokenizer, options: GenerateOptions) -> None:
    """Refuse to ask for what the template does not have."""
    from edgedec.text.thinking import marks_of

    template = tokenizer.chat_template
    if template is None:  # refused with the messages
        return
    if options.think and marks_of(tokenizer) is None and not template.switches_thinking:
        raise InputError("think: the chat template of this model has no thinking: leave it out")
    if options.reasoning_effort is not None and not template.reads_effort:
        raise InputError("reasoning_effort: the chat template does not read it: leave it out")


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
