"""Help in groups: the options most people use first, and all of them with ``--help-all``."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from edgedec.cli import _options

_ALL = "edgedec.help_all"
_HELP = ("help", "help_all", "_click_default_help")
_OWN, _LAST = "Options", "Help"
# Options by group, by the names of their parameters: those that --help shows, then those that only
# --help-all does. Runtimes declare further ones. Options of one command alone come first.
SHOWN: dict[str, tuple[str, ...]] = {
    "Text": ("max_new_tokens", "temperature", "top_p", "seed", "stop", "system", "json_schema",
             "raw", "session", "think"),
    "Drafting": ("draft", "draft_model", "drafter"),
    "Device and memory": ("threads", "device", "memory", "max_context"),
    "Output": ("verbosity", "out", "as_json"),
    "Model": ("weights", "calibrated", "name"),
}  # fmt: skip
RARE: dict[str, tuple[str, ...]] = {
    "Text": ("json_mode", "regex", "grammar", "top_k", "min_p", "repetition_penalty",
             "presence_penalty", "frequency_penalty", "logit_bias", "timeout", "messages",
             "ignore_eos", "think_tokens", "reasoning_effort", "hide_thinking"),
    "Drafting": ("draft_length", "draft_context", "accept", "batch_invariant"),
    "Device and memory": ("plan", "kv_memory", "draft_device", "format", "providers",
                          "runtime_option", "ray"),
    "Output": ("logprobs", "verbose"),
    "Model": ("named",),
}  # fmt: skip


class GroupedCommand(click.Command):
    """A command whose help shows options in groups.

    Attributes:
        shown: names of the parameters that ``--help`` shows, by group, in order.
        rare: those that only ``--help-all`` shows; of a group that ``shown`` has, after these.
        instead: what to do instead of other commands' options, by their names.

    """

    shown: ClassVar[dict[str, tuple[str, ...]]] = SHOWN
    rare: ClassVar[dict[str, tuple[str, ...]]] = RARE
    instead: ClassVar[dict[str, str]] = {}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all options, ``--help-all`` before ``--help`` if it shows more."""
        *own, last = super().get_params(ctx)
        rare = {name for names in self.rare.values() for name in names}
        more = any(one.name in rare for one in own)
        return [*own, *([_HELP_ALL] if more else []), last]

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
        runtimes = {option.name: option for option in _options.runtime_flags()}
        shown = {name for names in self.shown.values() for name in names}
        grouped = shown | {name for names in self.rare.values() for name in names}
        found: dict[str, list[str]] = {_OWN: []}
        for title, names in self.shown.items():
            found[title] = [*names]
        for title, names in self.rare.items() if everything else ():
            found.setdefault(title, []).extend(name for name in names if name not in shown)
        for name in (str(one.name) for one in options):
            if name not in grouped and name not in runtimes and name not in _HELP:
                found[_OWN].append(name)
            elif everything and name in runtimes and name not in grouped:
                found.setdefault(_options.group_of(name), []).append(name)
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
