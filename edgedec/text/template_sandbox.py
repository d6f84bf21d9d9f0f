"""A Jinja environment for untrusted templates.

Jinja's immutable sandbox keeps a template from reaching Python. It does not limit memory and time,
so templates are rendered in the child process of ``edgedec.text.chat``, which does.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox


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
    made.globals["strftime_now"] = _strftime_now
    return made


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """Serialise to JSON as model files expect it: without HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
