"""The child process of ``chat``: runs Jinja, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jinja2

from edgedec._support import _confined_child
from edgedec._support._confined_child import Exhausted, Refusal
from edgedec.text.template_sandbox import environment

SOURCE, MESSAGES = "source", "messages"
_KEPT = 4


class Renderer:
    """Renders templates by their source; the last few stay compiled."""

    def __init__(self) -> None:
        self._environment = environment()
        self._compiled: dict[str, jinja2.Template] = {}

    def render(self, task: Mapping[str, Any]) -> str:
        """Return the text of ``source`` with ``variables``, of at most ``max_chars``.

        Raises:
            Refusal: of kind ``source``, it is not Jinja; of kind ``messages``, the template
                refuses them.
            Exhausted: the text is too long.

        """
        template = self._template(task["source"])
        try:
            return _joined(template.generate(**task["variables"]), task["max_chars"])
        except (Exhausted, MemoryError):
            raise
        except Exception as error:  # a template is a program and may raise anything
            raise Refusal(MESSAGES, _line(error)) from None

    def _template(self, source: str) -> jinja2.Template:
        found = self._compiled.get(source)
        if found is None:
            try:
                found = self._environment.from_string(source)
            except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError) as error:
                raise Refusal(SOURCE, _line(error)) from None
            while len(self._compiled) >= _KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[source] = found
        return found


def _joined(pieces: Iterable[str], most: int) -> str:
    parts: list[str] = []
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > most:
            raise Exhausted(f"it writes more than {most} characters")
        parts.append(piece)
    return "".join(parts)


def _line(error: Exception) -> str:
    return " ".join(str(error)[:1000].split())[:300] or type(error).__name__


if __name__ == "__main__":
    _confined_child.serve(Renderer().render)
