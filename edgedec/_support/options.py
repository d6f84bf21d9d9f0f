"""Options, each declared once: as the field of a dataclass, with what is said of it.

``declared`` lists those of a class by the names that functions take. From this table come the flags
of the command line, what ``Pipeline.open`` and ``generate`` accept, their signatures and ``help``,
the types of these names (``edgedec/pipeline/names.pyi``, written by ``make help-pages``), fields of
a server's requests, and the reference of the Python interface.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter
from numbers import Real
from typing import Any, TypeVar

from edgedec.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
# Begins the options in a docstring.
HEADING = "Options, by name:"
# Titles of groups, as help pages have them.
TEXT, DRAFTING, OUTPUT = "Text", "Drafting", "Output"
DEVICE, GGUF = "Device and memory", "GGUF only"
_WIDTH = 96
_FLAG = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
# Arguments of commands, by the functions' names for them.
_ARGUMENTS = {"MODEL": "bundle", "TARGET": "target", "DIR": "out"}
_ARGUMENT = re.compile(r"\b(MODEL|TARGET|DIR)\b")


@dataclass(frozen=True, slots=True)
class Option:
    """What is said of an option, besides its name, type and default.

    Attributes:
        help: for the command line; empty if it has no such flag.
        text: for Python, where it is not ``help``.
        group: title of its group in help pages and in ``help()``.
        name: the keyword and the flag, where it is not the field's.
        short: a flag of one letter, such as ``-n``.
        kind: which values the command line takes, by a name in ``edgedec.cli._values.KINDS``; empty
            for what the type says.
        metavar: what stands for the value in a help page.
        choices: the allowed texts; empty is any.
        least, most: limits of a number.
        shows: the help page names the default.
        takes: type of the keyword, where it is wider than the field's.
        draft_help: help of the flag for the draft alone; empty if it has none.
        planned: a plan decides it.
        wire: least and most in a server's request, which then has a field of this name.

    """

    help: str = ""
    text: str = ""
    group: str = ""
    name: str = ""
    short: str = ""
    kind: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    shows: bool = False
    takes: str = ""
    draft_help: str = ""
    planned: bool = False
    wire: tuple[float, float] | None = None

    @property
    def said(self) -> str:
        """The text of Python's help, with flags named as keywords."""
        choices = f" One of {', '.join(self.choices)}." if self.choices else ""
        found = _FLAG.sub(lambda flag: f"``{flag[1].replace('-', '_')}``", self.help)
        found = _ARGUMENT.sub(lambda name: f"``{_ARGUMENTS[name[1]]}``", found)
        found = found if found[1:2].isupper() else found[:1].lower() + found[1:]
        return (self.text or found) + choices


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with its name as a keyword, its field, its type and its default."""

    name: str
    field: str
    type: str
    default: Any
    option: Option

    def check(self, value: object) -> None:
        """Raise InputError for a value out of the choices, or no whole number in the limits."""
        if self.option.choices and value not in (None, *self.option.choices):
            allowed = ", ".join(self.option.choices)
            raise InputError(f"{self.field} is {value!r:.60}: expected one of {allowed}")
        if self.type in ("int", "int | None"):
            check_whole(f"{self.field} is", value, none="None" in self.type)
            check_limits(self.field, value, self.option.least, self.option.most)
        elif self.type in ("float", "float | None") and self.option.least is not None:
            if not isinstance(value, (Real, type(None))):
                raise InputError(f"{self.field} is {value!r:.60}: expected a number")
            check_limits(self.field, value, self.option.least, self.option.most)


def option(default: Any, help: str = "", **details: Any) -> Any:
    """Return a field of a dataclass that is an option; ``details`` are attributes of ``Option``.

    A type as the default, such as ``dict``, makes one each time.
    """
    known = {"option": Option(help, **details)}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=known)
    return dataclasses.field(default=default, metadata=known)


@cache
def declared(kind: type) -> dict[str, Declared]:
    """Return the options of a dataclass, by their names as keywords."""
    found = {}
    for field in dataclasses.fields(kind):
        if (about := field.metadata.get("option")) is None:
            continue
        made = field.default_factory
        default = field.default if made is dataclasses.MISSING else made()
        name = about.name or field.name
        found[name] = Declared(name, field.name, about.takes or str(field.type), default, about)
    return found


def check_values(options: Any) -> None:
    """Raise InputError for an option of a dataclass that has no allowed value."""
    kind: Any = type(options)
    for one in declared(kind).values():
        one.check(getattr(options, one.field))


def check_whole(name: str, value: object, *, none: bool = True) -> None:
    """Refuse anything but a whole number; with ``none``, None is allowed, too.

    Raises:
        InputError: its message begins with ``name``.

    """
    if not isinstance(value, int) and not (none and value is None):
        raise InputError(f"{name} {value!r:.60}: expected a whole number")


def check_limits(name: str, value: Any, least: float | None, most: float | None) -> None:
    """Raise InputError for a number out of its limits, which are None where there is none."""
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    if value is None or low <= value <= high:
        return
    expected = f"{least} or more" if most is None else f"{least} to {most}"
    expected = f"{most} or less" if least is None else expected
    raise InputError(f"{name} is {value}: expected {expected}")


def described(kind: C) -> C:
    """Decorate a dataclass: its docstring ends with what is said of its options."""
    if kind.__doc__:
        found = [f"{one.field}: {one.option.said}" for one in declared(kind).values()]
        lines = [line for one in found for line in _wrapped(one, 4)]
        before, _, after = inspect.cleandoc(kind.__doc__).partition("Attributes:\n")
        kind.__doc__ = "\n".join([before.rstrip(), "", "Attributes:", *lines, after])
    return kind


def takes(options: Mapping[str, Declared]) -> Callable[[F], F]:
    """Return a decorator: the function's signature and docstring list options as parameters.

    Its ``**`` parameter stays, for other names that are accepted.
    """
    section = _section(options)

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *fixed, rest = signature.parameters.values()
        fixed = [one.replace(annotation=_written(one.annotation)) for one in fixed]
        listed = [
            Parameter(
                one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=_written(one.type)
            )
            for one in options.values()
        ]
        parameters = [*fixed, *listed, rest.replace(annotation=Parameter.empty)]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=parameters, return_annotation=_written(signature.return_annotation)
        )
        if function.__doc__:
            function.__doc__ = f"{inspect.cleandoc(function.__doc__).rstrip()}\n\n{section}"
        return function

    return decorate


class _Written(str):
    """An annotation, which signatures show without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _written(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def arguments_of(other: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that gives a docstring another function's Args, those of its own names."""
    found = re.search(r"^Args:\n(?:(?:    .*)?\n)+", inspect.cleandoc(other.__doc__ or ""), re.M)
    entries = re.split(r"^    (?=\w)", found[0], flags=re.M)[1:] if found else []

    def decorate(function: F) -> F:
        own = inspect.signature(function).parameters
        said = "".join(f"    {one}" for one in entries if one.partition(":")[0] in own)
        if function.__doc__ and said:
            before, raises, after = inspect.cleandoc(function.__doc__).partition("Raises:")
            function.__doc__ = f"{before.rstrip()}\n\nArgs:\n{said.rstrip()}\n\n{raises}{after}"
        return function

    return decorate


def _section(options: Mapping[str, Declared]) -> str:
    """Return the options of a docstring, by group; those of which the same is said, together."""
    groups = dict[str, dict[str, list[str]]]()
    for one in options.values():
        groups.setdefault(one.option.group, {}).setdefault(one.option.said, []).append(one.name)
    lines = [HEADING]
    for title, together in groups.items():
        lines += ["", f"  {title}"] if title else []
        for text, alike in together.items():
            lines += _wrapped(f"{', '.join(alike)}: {text}", 4)
    return "\n".join(lines)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
