"""Writes docs/api.md, the reference of the Python interface, from signatures and docstrings.

``help_pages.py`` calls it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from inspect import Parameter
from textwrap import dedent
from typing import Any

import edgedec
from edgedec import errors
from edgedec._support.options import HEADING
from edgedec.bundle import Bundle
from edgedec.export import ExportReport
from edgedec.library import Form, Library, Model
from edgedec.records.plan import Decision

HEAD = """# Python reference

Written from the docstrings by `make help-pages`; do not edit. [From Python](python.md) is the
introduction. What stands here is in the package `edgedec`, as `edgedec.Pipeline`, unless its title
says another module.
"""
# The order of the page.
PARTS: dict[str, list[Any]] = {
    "Open a model": [edgedec.Pipeline],
    "Texts": [edgedec.Generation, edgedec.ScoredToken, edgedec.Stream, edgedec.AsyncStream,
              edgedec.Emission, edgedec.Metrics],
    "Options": [edgedec.GenerateOptions, edgedec.SamplingParams, edgedec.OpenOptions],
    "Models": [edgedec.convert, edgedec.pull, edgedec.plan, Library, Model, Form, Bundle,
               ExportReport, Decision],
    "Errors": [errors.EdgedecError],
}  # fmt: skip
# Members that programs do not need, and those that they do, where these are few.
HIDDEN = {"observe", "unread_tokens"}
SHOWN = {
    "GenerateOptions": (), "SamplingParams": (), "OpenOptions": ("changed",),
    "Library": ("models", "get", "find", "matching", "remove", "clean", "clear", "size_bytes"),
}  # fmt: skip
# Where the options of a text and of opening are listed: from this one on, for others to refer to.
LISTED = {"max_new_tokens": "Pipeline.stream", "drafter": "Pipeline.open"}
SECTION = re.compile(r"(Args|Attributes|Raises|Returns):")
TITLES = {"Args": "Arguments"}
# Modules in front of a type's name.
MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
WIDTH = 90


def page() -> str:
    """The whole page, Markdown."""
    parts = [HEAD]
    for title, things in PARTS.items():
        parts.append(f"## {title}\n")
        for thing in things:
            parts += section(thing)
    return "\n".join(parts)


def section(thing: Any) -> Iterator[str]:
    """A class with its members, or a function."""
    name = thing.__name__
    yield f"### {name if name in edgedec.__all__ else f'{home(thing)}.{name}'}\n"
    if thing is errors.EdgedecError:
        yield f"```\n{tree(errors.__doc__ or '')}\n```\n"
        return
    if not inspect.isclass(thing) or has_options(thing):
        yield signed(name, inspect.signature(thing))
    yield from described(thing)
    for member, value in members(thing):
        yield f"#### {name}.{member}\n"
        if callable(value):
            yield signed(f"{name}.{member}", inspect.signature(value))
        yield from described(value)


def home(thing: Any) -> str:
    """The module to import a thing from: the package of its own, if that has it as well."""
    above = thing.__module__.rpartition(".")[0]
    return above if hasattr(sys.modules[above], thing.__name__) else thing.__module__


def has_options(kind: type) -> bool:
    """Whether a class is made by those who read the page."""
    return dataclasses.is_dataclass(kind) and kind.__name__.endswith(("Options", "Params", "Form"))


def members(kind: Any) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that are documented, in the order of their definition."""
    if not inspect.isclass(kind):
        return
    found: dict[str, Any] = {}
    for one in kind.__mro__:
        if one.__module__.startswith("edgedec."):
            found |= {name: value for name, value in vars(one).items() if name not in found}
    for name, value in found.items():
        plain = value.__func__ if isinstance(value, classmethod) else value
        hidden = HIDDEN | getattr(kind, "hidden_names", set())
        if name.startswith("_") or name in hidden or not getattr(plain, "__doc__", None):
            continue
        if name not in SHOWN.get(kind.__name__, (name,)):
            continue
        if isinstance(plain, property):
            yield name, plain
        elif inspect.isfunction(plain):
            yield name, getattr(kind, name)


def tree(text: str) -> str:
    """The first indented block of a docstring."""
    block = inspect.cleandoc(text).split("::\n\n", 1)[1].split("\n\n", 1)[0]
    return dedent(block)


def signed(name: str, signature: inspect.Signature) -> str:
    """A signature as code, one parameter a line if it is long."""
    listed, others = list(signature.parameters.values()), ""
    listed = [one for one in listed if one.name != "self"]
    for first, place in LISTED.items():
        names = [one.name for one in listed]
        keyword = first in names and listed[names.index(first)].kind is Parameter.KEYWORD_ONLY
        if keyword and name != place:
            listed = [*listed[: names.index(first)], listed[-1]]
            others = f"\n`{listed[-1].name}` are those of `{place}`.\n"
    kinds, shown = [one.kind for one in listed], [parameter(one) for one in listed]
    if Parameter.KEYWORD_ONLY in kinds:
        shown.insert(kinds.index(Parameter.KEYWORD_ONLY), "*")
    returned = "" if signature.return_annotation is signature.empty else signature.return_annotation
    end = f" -> {typed(returned)}" if returned and str(returned) != "None" else ""
    line = f"{name}({', '.join(shown)}){end}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {one},\n" for one in shown) + f"){end}"
    return f"```python\n{line}\n```\n{others}"


def parameter(one: Parameter) -> str:
    """A parameter with its type and default."""
    name = f"**{one.name}" if one.kind is Parameter.VAR_KEYWORD else one.name
    kind = "" if one.annotation is Parameter.empty else f": {typed(one.annotation)}"
    if one.default is Parameter.empty:
        return name + kind
    default = "..." if "<" in repr(one.default) else repr(one.default)
    return f"{name}{kind} = {default}" if kind else f"{name}={default}"


def typed(annotation: Any) -> str:
    """A type as it is written."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"InitVar\[(.+)\]", r"\1", MODULES.sub("", text.strip("'")))


def described(thing: Any) -> Iterator[str]:
    """A docstring in Markdown: paragraphs, code, and lists of what it names."""
    title, body = "", list[str]()
    # Those of a dataclass on this page stand there.
    said, _, options = inspect.cleandoc(thing.__doc__ or "").partition(HEADING)
    for line in said.rstrip().splitlines():
        found = SECTION.fullmatch(line)
        if found or (title and line and not line.startswith(" ")):  # a section ends as well
            yield from (listed(title, body) if title else prose(body))
            title, body = (found[1] if found else ""), []
        if not found:
            body.append(line)
    yield from (listed(title, body) if title else prose(body))
    if options and thing in PARTS["Models"]:
        yield from listed("Options", [line for line in options.splitlines() if line[:3] == "   "])


def prose(lines: list[str]) -> Iterator[str]:
    """Paragraphs, and blocks of code after a ``::``."""
    for paragraph in "\n".join(lines).strip().split("\n\n"):
        if paragraph.startswith(" "):
            yield f"```python\n{dedent(paragraph)}\n```\n"
        elif text := plain(paragraph.removesuffix("::").strip()):
            yield f"{text}\n"


def listed(title: str, lines: list[str]) -> Iterator[str]:
    """A section of a docstring as a list."""
    entries = list[str]()
    for line in dedent("\n".join(lines)).splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line.strip():
            entries.append(line)
    yield f"{TITLES.get(title, title)}:\n"
    yield "\n".join(f"- {entry(one)}" for one in entries) + "\n"


def entry(text: str) -> str:
    """One name, or several, with what is said about them."""
    found = re.fullmatch(r"([\w, ]+): (.+)", text)
    if found is None:
        return plain(text)
    names = ", ".join(f"`{name.strip()}`" for name in found[1].split(","))
    return f"{names}: {plain(found[2])}"


def plain(text: str) -> str:
    """One paragraph, with code in single back-ticks."""
    return " ".join(text.replace("``", "`").split())
