"""Flags of options that are declared once: ``edgedec._support.options``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import click

from edgedec._support.options import Declared
from edgedec.cli import _values

F = TypeVar("F", bound=Callable[..., Any])
_RANGES: dict[str, Any] = {"int": click.IntRange, "float": click.FloatRange}
_NUMBERS: dict[str, Any] = {"int": click.INT, "float": click.FLOAT}


class Flag(click.Option):
    """The flag of a declared option.

    Attributes:
        group: title of its group in help pages, where only ``--help-all`` shows it unless the
            command says otherwise; empty if it stands with the command's own.

    """

    def __init__(self, *args: Any, group: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option with its help; drafters are listed when it is shown."""
        record = super().get_help_record(ctx)
        if record is None or "{drafters}" not in record[1]:
            return record
        return record[0], record[1].replace("{drafters}", ", ".join(_values.drafters()))


def made(one: Declared, **changes: Any) -> Flag:
    """Return the flag of an option, with other attributes than its own if they are given."""
    return Flag(_names(one), **_attributes(one) | changes)


def flag(one: Declared, **changes: Any) -> Callable[[F], F]:
    """Return a decorator that gives a command the flag of an option, as ``made`` makes it."""
    return click.option(*_names(one), cls=Flag, **_attributes(one) | changes)


def flags(
    table: Mapping[str, Declared], names: Iterable[str] = (), without: Collection[str] = ()
) -> list[Callable[[F], F]]:
    """Return the flags of a table's options that have one: of these names, or all but some."""
    chosen = [*names] or [name for name, one in table.items() if one.option.help]
    return [flag(table[name]) for name in chosen if name not in without]


def _names(one: Declared) -> list[str]:
    name = f"--{one.name.replace('_', '-')}"
    if _base(one) == "bool" and one.default is not False:
        name += f"/--no-{name[2:]}"
    return [*filter(None, [one.option.short]), name, one.field]


def _attributes(one: Declared) -> dict[str, Any]:
    about, base, kind = one.option, _base(one), None
    found: dict[str, Any] = {"help": about.help, "metavar": about.metavar, "group": about.group}
    if base == "bool":
        found |= {"is_flag": True, "default": None}
    elif about.kind:
        kind = _values.KINDS[about.kind]
    elif about.choices:
        kind = click.Choice(about.choices)
    elif base in _NUMBERS:
        limited = about.least is not None or about.most is not None
        kind = _RANGES[base](about.least, about.most) if limited else _NUMBERS[base]
    if about.shows:
        value = ",".join(one.default) if isinstance(one.default, tuple) else one.default
        found |= {"default": value, "show_default": True}
    return found | {"type": kind, "multiple": one.default in ((), {})}


def _base(one: Declared) -> str:
    return one.type.partition(" ")[0]
