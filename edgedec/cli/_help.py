"""Help in groups: the options most people use first, and all of them with ``--help-all``."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from edgedec.cli import _options

_ALL = "edgedec.help_all"
_HELP = ("help", "help_all", "_click_default_help")
_OWN, _LAST = "Options", "Help"
# Options by group, by the names of their parameters: those that --help shows, then those that only
# --help-all does, besides the declared ones. Options of one command alone come first.
SHOWN: dict[str, tuple[str, ...]] = {
    "Text": ("max_new_tokens", "temperature", "top_p", "seed", "stop", "system", "json_schema",
             "raw", "session", "think"),
    "Drafting": ("draft", "draft_model", "yes", "no_draft", "spec", "drafter"),
    "Device and memory": ("threads", "device", "memory", "max_context"),
    "Output": ("verbosity", "out", "as_json"),
    "Model": ("weights", "calibrated", "name"),
}  # fmt: skip
RARE: dict[str, tuple[str, ...]] = {
    "Text": ("messages", "ignore_eos", "hide_thinking"),
    "Device and memory": ("runtime_option", "ray"),
    "Output": ("verbose",),
    "Model": ("named", "max_kl"),
}  # fmt: skip


class GroupedCommand(click.Command):
    """A command whose help shows options in groups.

    Attributes:
        shown: names of the parameters that ``--help`` shows, by group, in order.
        rare: those that only ``--help-all`` shows, besides the declared ones, which name a group.
        instead: what to do instead of other commands' options, by their names.

    """

    shown: ClassVar[dict[str, tuple[str, ...]]] = SHOWN
    rare: ClassVar[dict[str, tuple[str, ...]]] = RARE
    instead: ClassVar[dict[str, str]] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all options, ``--help-all`` before ``--help`` if it shows more."""
        *own, last = super().get_params(ctx)
        more = any(self._rare(one) for one in own)
        return [*own, *([_HELP_ALL] if more else []), last]

    def _rare(self, one: click.Parameter) -> str:
        """Return the group of an option that only ``--help-all`` shows; "" of any other."""
        if any(one.name in names for names in self.shown.values()):
            return ""
        titles = [title for title, names in self.rare.items() if one.name in names]
        return next(iter(titles), getattr(one, "group", ""))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        for title, names in self._groups(options, everything=bool(ctx.meta.get(_ALL))).items():
            by_name = {one.name: one.get_help_record(ctx) for one in options if one.name in names}
            records = [found for name in names if (found := by_name.get(name)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _groups(self, options: list[click.Option], *, everything: bool) -> dict[str, list[str]]:
        """Return the names of the parameters to show, by group."""
        shown = {name for names in self.shown.values() for name in names}
        found: dict[str, list[str]] = {_OWN: [], **{k: [*names] for k, names in self.shown.items()}}
        for one in options:
            title, name = self._rare(one), str(one.name)
            if title and everything:
                found.setdefault(title, []).append(name)
            elif not title and name not in shown and name not in _HELP:
                found[_OWN].append(name)
        found[_LAST] = [*_HELP]
        return found


class LoadCommand(GroupedCommand):
    """A command with ``LOAD``, which also takes the options that runtimes declare."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all options, with the runtimes' before ``--verbose``, which ends ``LOAD``."""
        own = super().get_params(ctx)
        names = {name for parameter in own for name in parameter.opts}
        runtimes = [option for option in _options.runtime_flags() if not names & {*option.opts}]
        here = next(index for index, one in enumerate(own) if one.name in ("verbose", "verbosity"))
        return [*own[:here], *runtimes, *own[here:]]


def _show_all(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options and exit.",
)
