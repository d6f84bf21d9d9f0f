"""The child process of ``chat``: runs Jinja, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from edgedec._support import _sandbox_child
from edgedec._support._sandbox_child import Exhausted, Refusal

SOURCE, MESSAGES = "source", "messages"
_KEPT = 4


# -- a Jinja environment for untrusted templates ------------------------------------------------
#
# Jinja's immutable sandbox keeps a template from reaching Python. It does not limit memory and
# time, so templates are rendered in the child process of ``edgedec.text.chat``, which does.


class GenerationTag(jinja2.ext.Extension):
    """``{% generation %}``, which marks the assistant's words for training; ignored here."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Return the sandbox with the settings and functions that model files expect."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationTag],
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise_exception
    return made


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Serialise to JSON as transformers' filter does, without HTML escapes."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


# -- the tasks ----------------------------------------------------------------------------------


class Renderer:
    """Renders templates by their source; the last few stay compiled."""

    def __init__(self) -> None:
        self._environment = environment()
        self._environment.globals["strftime_now"] = self._strftime_now
        self._now: float | None = None
        self._compiled: dict[str, jinja2.Template] = {}

    def render(self, task: Mapping[str, Any]) -> str:
        """Return the text of ``source`` with ``variables``, of at most ``max_chars``.

        ``now``, in seconds, is the time that it is rendered at; None is the clock's.

        Raises:
            Refusal: of kind ``source``, it is not Jinja; of kind ``messages``, the template
                refuses them.
            Exhausted: the text is too long.

        """
        template = self._template(task["source"])
        self._now = task.get("now")
        try:
            return _joined(template.generate(**task["variables"]), task["max_chars"])
        except (Exhausted, MemoryError):
            raise
        except Exception as error:  # a template is a program and may raise anything
            raise Refusal(MESSAGES, _line(error)) from None

    def _strftime_now(self, form: str) -> str:
        now = datetime.now() if self._now is None else datetime.fromtimestamp(self._now)
        return now.strftime(form)

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
    _sandbox_child.serve(Renderer().render)
