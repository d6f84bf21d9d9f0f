"""Signatures that list options one by one, where a function takes ``**options: Unpack[...]``."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from typing import Any, TypeVar, get_type_hints

F = TypeVar("F", bound=Callable[..., Any])


def lists(
    options: type, defaults: Mapping[str, Any], *, without: Collection[str] = ()
) -> Callable[[F], F]:
    """Return a decorator: ``inspect.signature`` of the function lists options as parameters.

    The function's ``**`` parameter stays, for the names that are left out.

    Args:
        options: a TypedDict, whose order is that of the parameters.
        defaults: of the options; those that are not in it have None.
        without: names that are accepted and not listed, as former ones.

    """

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
        return function

    return decorate


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
