"""Renders chat templates, untrusted Jinja programs that come with a model.

A child process with limits on its memory and time (see ``sandbox``) renders them; it starts with
the first conversation and stays for the next turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from edgedec._support.sandbox import Limits, Refused, Sandbox, Stopped
from edgedec.errors import BundleError, EdgedecError, InputError

MAX_SOURCE = 256 << 10
MAX_CHARS = 4_000_000
# Python and Jinja take 25 MiB of address space; a text of MAX_CHARS and its answer at most 100. A
# turn takes a millisecond or two; on a slow device and in a long conversation perhaps fifty.
LIMITS = Limits(memory_bytes=160 << 20, cpu_s=1.0, wall_s=10.0, answer_bytes=5 * MAX_CHARS)
# Variables of templates that switch thinking, and the one that says how much.
SWITCHES, EFFORT = ("enable_thinking", "thinking"), "reasoning_effort"
_IDLE_S = 600.0
_CHILD = Sandbox("edgedec.text._template_child", idle_s=_IDLE_S)


class ChatTemplate:
    """A chat template, compiled at its first use.

    Args:
        source: Jinja source, as ``tokenizer_config.json`` holds it; kept as ``source``.
        bos_token, eos_token: given to the template under these names; the first is kept.

    Raises:
        BundleError: it is too large.

    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise BundleError(f"the chat template: expected at most {MAX_SOURCE} characters")
        self.source = source
        self.bos_token = bos_token
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._switches: bool | None = None

    @property
    def shows_tools(self) -> bool:
        """True if the template reads a list of tools."""
        return self.reads("tools")

    def reads(self, name: str) -> bool:
        """Return whether a variable's name is in the template."""
        return re.search(rf"\b{re.escape(name)}\b", self.source) is not None

    @property
    def switches_thinking(self) -> bool | None:
        """True if the template can switch thinking off: its text depends on the variables.

        None if it was stopped before that was known; it is rendered again when next asked.
        """
        if self._switches is None:
            self._switches = self._switching()
        return self._switches

    def _switching(self) -> bool | None:
        question = [{"role": "user", "content": "Hi"}]
        try:
            on, off = (self.render(question, variables=thinking(one)) for one in (True, False))
        except InputError:  # its own answer to these messages, which stays the same
            return False
        except EdgedecError:
            return None
        return on != off

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the conversation as the model was trained to read it.

        Args:
            messages: objects with ``role`` and ``content``, both text. The thinking before an
                answer is its ``reasoning_content``, which many templates leave out.
            add_generation_prompt: end with the beginning of the assistant's turn.
            tools: functions that the model may call, as JSON schemas.
            variables: of the template's own, such as ``enable_thinking``.

        Raises:
            InputError: the messages are not as expected, or the template refuses them.
            BundleError: the template is not Jinja, or exceeds its limits.

        """
        given = {
            **(variables or {}),
            "messages": [_both_names(message) for message in check_messages(messages)],
            "add_generation_prompt": add_generation_prompt,
            **self._tokens,
        }
        if tools:
            given["tools"] = list(tools)
        task = {"source": self.source, "variables": given, "max_chars": MAX_CHARS}
        try:
            text = _CHILD.ask(task, LIMITS)
        except Stopped as error:
            raise BundleError(f"the chat template was stopped: {error}") from None
        except Refused as error:
            if error.kind == "source":
                raise BundleError(f"the chat template is not Jinja: {error}") from None
            raise InputError(f"the chat template refuses these messages: {error}") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"messages: expected JSON values only: {error}") from None
        return str(text)


def thinking(think: bool | None, effort: str | None = None) -> dict[str, Any]:
    """Return the variables, as templates name them, that ask a model to think, or not to.

    Args:
        think: None leaves it to the template.
        effort: such as ``low``; None likewise.

    """
    switch = {} if think is None else dict.fromkeys(SWITCHES, think)
    return switch | ({} if effort is None else {EFFORT: effort})


def _both_names(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose thinking has both names that templates read."""
    thought = message.get("reasoning_content")
    return message if thought is None else {"thinking": thought, **message}


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """Return a checked copy of messages, each with text ``role`` and ``content``; or InputError."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise InputError('messages: expected a list such as [{"role": "user", "content": "Hi"}]')
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise InputError(f"messages[{index}]: expected an object with text role and content")
    return [dict(message) for message in messages]
