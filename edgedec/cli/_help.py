"""Help in groups: the options most people use, and all of them with ``--help-all``."""

from __future__ import annotations

from typing import Any

import click

from edgedec.cli import _options

# The options that --help shows in groups, by the names of their parameters.
_GROUPS = {
    "Text": ("max_new_tokens", "temperature", "top_p", "seed", "stop", "system", "json_schema",
             "think"),
    "Drafting": ("draft", "draft_model", "drafter"),
    "Machine": ("threads", "device", "memory", "max_context"),
}  # fmt: skip
# Options that only --help-all shows; those of one command alone are always shown.
_RARE = {
    "named", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "logit_bias", "timeout", "json_mode", "regex", "grammar", "draft_length", "accept",
    "providers", "draft_context", "kv_memory", "plan", "batch_invariant", "format",
    "draft_device", "verbose", "runtime_option", "logprobs", "messages", "out",
    "think_tokens", "reasoning_effort", "hide_thinking",
}  # fmt: skip
_ALL = "edgedec.help_all"


class OpenCommand(click.Command):
    """A command that opens models: its help shows the common options, in groups."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all options, ``--help-all`` before ``--help``."""
        *own, last = super().get_params(ctx)
        return [*own, _HELP_ALL, last]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by group; the others, if they are shown, at the end."""
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in (*_GROUPS, "Other")}
        runtime = {option.name for option in _options.runtime_flags()}
        for parameter in self.get_params(ctx):
            record, name = parameter.get_help_record(ctx), parameter.name
            rare = name in _RARE or name in runtime
            shown = isinstance(parameter, click.Option) and (not rare or ctx.meta.get(_ALL))
            if record is None or not shown:
                continue
            group = next((title for title, names in _GROUPS.items() if name in names), "Other")
            rows[group].append(record)
        for title, records in rows.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LoadCommand(OpenCommand):
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
