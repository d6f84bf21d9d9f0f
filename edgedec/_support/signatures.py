"""Signatures and help that list options, where a function takes ``**options: Unpack[...]``.

What is said of an option stands once, where its dataclass declares it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from typing import Any, TypeVar, get_type_hints

F = TypeVar("F", bound=Callable[..., Any])
# Names of options by what they are for, and what is said of each.
Groups = Mapping[str, Collection[str]]
# Begins the options in a docstring.
HEADING = "Options, by name:"
_WIDTH = 96


def lists(
    options: type,
    defaults: Mapping[str, Any],
    *,
    without: Collection[str] = (),
    groups: Groups | None = None,
    texts: Mapping[str, str] | None = None,
) -> Callable[[F], F]:
    """Return a decorator: ``inspect.signature`` of the function lists options as parameters.

    The function's ``**`` parameter stays, for the names that are left out. With ``groups`` its
    docstring ends with them.

    Args:
        options: a TypedDict, whose order is that of the parameters.
        defaults: of the options; those that are not in it have None.
        without: names that are accepted and not listed, as former ones.
        groups: the options by the title of their group.
        texts: what is said of them, by name.

    """
    section = "" if groups is None else _section(groups, texts or {})

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *fixed, rest = (_evaluated(one, function) for one in signature.parameters.values())
        assert rest.kind is Parameter.VAR_KEYWORD, f"{function.__qualname__} takes no options"
        listed = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
            for name, kind in get_type_hints(options).items()
            if name not in without
        ]
        rest = rest.replace(annotation=Parameter.empty)
        parameters = [*fixed, *listed, rest]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        if function.__doc__ and section:
            function.__doc__ = f"{inspect.cleandoc(function.__doc__).rstrip()}\n\n{section}"
        return function

    return decorate


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


def texts_of(*kinds: type) -> dict[str, str]:
    """Return what classes' docstrings say of their attributes, by name; {} without docstrings."""
    found = dict[str, str]()
    for kind in kinds:
        _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
        section = re.split(r"^\S", section, maxsplit=1, flags=re.M)[0]
        for entry in re.split(r"^    (?=\w)", section, flags=re.M)[1:]:
            names, _, text = entry.partition(": ")
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def _section(groups: Groups, texts: Mapping[str, str]) -> str:
    """Return the options of a docstring; those of a group of which the same is said, together."""
    lines = [HEADING]
    for title, names in groups.items():
        lines += ["", f"  {title}"]
        together = dict[str, list[str]]()
        for name in names:
            together.setdefault(texts.get(name, ""), []).append(name)
        for text, alike in together.items():
            told = f"{', '.join(alike)}: {text}" if text else ", ".join(alike)
            lines += textwrap.wrap(
                told, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
    return "\n".join(lines)


def defaults_of(*kinds: type) -> dict[str, Any]:
    """Return the defaults of dataclasses' fields by name."""
    found = {}
    for field in (field for kind in kinds for field in dataclasses.fields(kind)):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def _evaluated(parameter: Parameter, function: Callable[..., Any]) -> Parameter:
    """Return the parameter with the type that its annotation names, where that is imported."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return parameter
    try:
        return parameter.replace(annotation=eval(annotation, function.__globals__))
    except (NameError, AttributeError):  # imported for type checking alone
        return parameter
