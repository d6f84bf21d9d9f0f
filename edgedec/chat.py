"""Chat templates: Jinja programs that come with a model, run without trusting them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2

from edgedec.errors import BundleError, InputError
from edgedec.sandbox import Exhausted, Meter, MeteredEnvironment, check_size

MAX_SOURCE = 256 << 10


class ChatTemplate:
    """One template, compiled once.

    Args:
        source: Jinja source, as ``tokenizer_config.json`` holds it.
        bos_token, eos_token: given to the template under these names.

    Raises:
        BundleError: it is too large, or no Jinja.

    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        if len(source) > MAX_SOURCE:
            raise BundleError(f"the chat template: expected at most {MAX_SOURCE} characters")
        self._environment = MeteredEnvironment()
        self._globals = {"bos_token": bos_token, "eos_token": eos_token}
        self._lock = threading.Lock()
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError, MemoryError) as error:
            raise BundleError(f"the chat template is no Jinja: {_line(error)}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> str:
        """The conversation as the model was trained to read it.

        Args:
            messages: objects with ``role`` and ``content``, both text.
            add_generation_prompt: end with the beginning of the assistant's turn.

        Raises:
            InputError: the messages are not as expected, or the template refuses them.
            BundleError: the template does not end within its bounds.

        """
        checked = check_messages(messages)
        with self._lock:
            self._environment.meter = Meter()
            try:
                return self._joined(
                    self._template.generate(
                        messages=checked,
                        add_generation_prompt=add_generation_prompt,
                        **self._globals,
                    )
                )
            except Exhausted as error:
                raise BundleError(f"the chat template was stopped: {error}") from None
            except Exception as error:  # a template is a program: anything may come out of it
                raise InputError(
                    f"the chat template refuses these messages: {_line(error)}"
                ) from None

    @staticmethod
    def _joined(pieces: Iterable[str]) -> str:
        parts: list[str] = []
        total = 0
        for piece in pieces:
            total += len(piece)
            check_size(total)
            parts.append(piece)
        return "".join(parts)


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages, copied.

    Raises:
        InputError: not a list of objects with ``role`` and ``content``, both text.

    """
    if not isinstance(messages, (list, tuple)) or not messages:
        raise InputError('messages: expected a list such as [{"role": "user", "content": "Hi"}]')
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise InputError(f"messages[{index}]: expected an object with text role and content")
    return [dict(message) for message in messages]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
