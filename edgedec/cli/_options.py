"""Options shared by commands."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgedec._support.options import DEVICE, GGUF, declared
from edgedec.cli import _config, _library, _partner, _progress, _values
from edgedec.cli._flags import Flag, flag, flags, made
from edgedec.decoding import drafting
from edgedec.loading.options import OPENINGS, OpenOptions
from edgedec.records.load import LoadOptions
from edgedec.records.workload import Workload
from edgedec.runtimes import registry

if TYPE_CHECKING:
    from edgedec.pipeline import Pipeline
    from edgedec.records.adapter import LoadOption

_DRAFT = "draft_"
_SWITCH = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
F = TypeVar("F", bound=Callable[..., Any])


class _RuntimeOption(click.Option):
    """``--runtime-option``, whose help lists the options when it is shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "type": _parsed})

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        known = [f"{name}: {option.help}" for name, option in _declared().items() if option.help]
        self.help = (
            f"An option of a runtime; repeatable. {' '.join(known)} With {_DRAFT} in front, for"
            " the draft alone."
        )
        return super().get_help_record(ctx)


# The options for loading, which commands have that open no pipeline.
_LOADING = ("format", "device", "draft_device")
# A drafter's name is accepted as well, as before there was --drafter.
DRAFT = flag(OPENINGS["draft"])
# A draft model alone, for commands that choose drafters themselves.
DRAFT_MODEL = click.option("--draft", "draft_model", type=_values.draft_model, metavar="MODEL",
                           help="Draft model, given like MODEL: a smaller one of the same family; "
                           "default: the draft that comes with MODEL.")  # fmt: skip
THREADS = flag(OPENINGS["threads"])
# The options for opening a pipeline, except DRAFT.
SETTINGS = flags(declared(OpenOptions) | declared(LoadOptions), without=("draft", *_LOADING))
OPEN = [DRAFT, *SETTINGS]
# The same for commands that look for a draft.
FINDS = [*_partner.OPTIONS, flag(OPENINGS["draft"], help=_partner.DRAFT_HELP), *SETTINGS]

LOG = click.option("-v", "--verbose", is_flag=True, help="Show the runtime's own log.")
DETAILS = click.option("-v", "--verbose", "verbosity", count=True,
                       help="Show all figures of a text; -vv shows the runtime's own log "
                       "as well.")  # fmt: skip

LOAD = [
    *flags(OPENINGS, _LOADING),
    click.option("--runtime-option", cls=_RuntimeOption, multiple=True,
                 metavar="NAME=VALUE"),
    LOG,
]  # fmt: skip

# For commands that write a text, instead of ``LOAD``.
LOAD_AND_WRITE = [*LOAD[:-1], DETAILS]

WORKLOAD = [
    *flags(declared(Workload), ("temperature", "prompt_tokens", "new_tokens")),
    click.option("--all", "show_all", is_flag=True, help="Show every plan that was considered."),
]


def _declared() -> dict[str, LoadOption]:
    return registry.options()


def _parsed(text: str | tuple[str, object]) -> tuple[str, object]:
    """Parse ``NAME=VALUE``; the value is checked when the model is opened."""
    if isinstance(text, tuple):
        return text
    name, separator, value = text.partition("=")
    name = name.strip().replace("-", "_")
    option = _declared().get(name.removeprefix(_DRAFT))
    if option is None or not separator:
        raise click.BadParameter(
            f"{text!r:.60}: expected NAME=VALUE, with a name of {', '.join(_declared())}"
        )
    if option.type is bool:
        if value.lower() not in _SWITCH:
            raise click.BadParameter(f"{text!r:.60}: expected {name}=on or {name}=off")
        return name, _SWITCH[value.lower()]
    if option.in_bytes:
        return name, _values.size(value)
    return name, click.INT(value) if option.type is int else value


@functools.cache
def runtime_flags() -> list[Flag]:
    """Return a flag for each option; hidden unless many people set it."""
    found: dict[str, Flag] = {}
    for info in registry.infos().values():
        formats = "/".join(info.formats).upper()
        for option in info.options:
            one = replace(option.declared, default=option.default)
            group, says = _group_of(option.name), f"{formats}: {option.help}"
            found[one.name] = made(one, group=group, help=says, hidden=not option.common)
            if option.draft_help:
                name, says = f"{_DRAFT}{one.name}", f"{formats}: {option.draft_help}"
                one = replace(one, name=name, field=name)
                found[name] = made(one, group=group, help=says, hidden=True)
    return list(found.values())


def _group_of(option: str) -> str:
    """Return the group of the help page in which an option of runtimes stands."""
    formats = {
        format
        for info in registry.infos().values()
        if option in (one.name for one in info.options)
        for format in info.formats
    }
    return GGUF if formats == {"gguf"} else DEVICE


def alone(option: str, allowed: Collection[str], advice: str) -> None:
    """Refuse other options together with an exclusive one.

    Args:
        option: the exclusive option, as the user writes it.
        allowed: names of the parameters that may be combined with it, including its own.
        advice: for the end of the message.

    Raises:
        UsageError: something else was given.

    """
    context = click.get_current_context()
    for name in {*context.params} - {*allowed}:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option}: {advice}")


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def texts(count: int, least_tokens: int, tokens: int = 128) -> list[Callable[[F], F]]:
    """Return options for prompts and lengths, for commands that compare texts."""
    return [
        click.option("--prompts", type=_values.FILE, metavar="FILE.jsonl",
                     help='Lines such as {"prompt": "Hello"}; default: heads of functions that '
                     "the demo pair was not trained on."),
        click.option("--count", type=click.IntRange(min=1), default=count, show_default=True,
                     metavar="N", help="How many of the default prompts."),
        click.option("-n", "--max-new-tokens", type=click.IntRange(min=least_tokens),
                     default=tokens, show_default=True, metavar="N",
                     help="Tokens to generate for each."),
    ]  # fmt: skip


def options(*groups: list[Callable[[F], F]]) -> Callable[[F], F]:
    """Return a decorator that adds all options of these groups, in order."""

    def decorate(command: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def open_options(chosen: dict[str, Any], target: str | Path) -> OpenOptions:
    """Return ``OpenOptions`` from the values of ``OPEN`` and ``LOAD``; notes a lossy rule.

    The draft model that they name is found, and fetched or converted, as ``_library.path`` does.
    """
    from edgedec.decoding.acceptance import rule

    if (accept := chosen["accept"]) is not None and not rule(accept).lossless:
        click.echo(f"note: --accept {accept} is not lossless: it changes the text", err=True)
    _config.one_drafter(chosen)
    draft, drafter = _config.settled(chosen["draft"], chosen["drafter"])
    chosen = {**chosen, "draft": draft, "drafter": drafter}
    named = isinstance(draft, str)
    if named and drafter not in (None, draft):
        raise click.UsageError(f"--draft {draft} names a drafter as --drafter does: give one")
    options = load_options(chosen)
    unused = [] if named or draft is None else ["--draft MODEL"]
    unused += [registry_flag(name) for name in options.given_for_draft]
    drafter = options.drafter
    if unused and drafter != drafting.AUTO and not drafting.info(drafter).needs_model:
        raise click.UsageError(
            f"the drafter {drafter} takes no draft model: leave {' and '.join(unused)} out"
        )
    return options.changed(draft=_library.draft_path(options.draft, target, options.format))


def load_options(chosen: dict[str, Any], **more: Any) -> OpenOptions:
    """Return ``OpenOptions`` from the values of a command that have the names of its options."""
    if chosen.get("verbose") or chosen.get("verbosity", 0) > 1:
        logging.basicConfig(format="%(message)s")  # standard error
        logging.getLogger("edgedec").setLevel(logging.DEBUG)
    chosen = {**chosen, **dict(chosen.get("runtime_option", ())), **more}
    names = OpenOptions.names()
    given = {name: value for name, value in chosen.items() if value not in (None, ())}
    return OpenOptions(**{name: value for name, value in given.items() if name in names})


def registry_flag(name: str) -> str:
    """Return the flag of an option for the draft alone."""
    return registry.flag(name, None, draft=True)


@contextmanager
def opened(
    target: str | Path, options: OpenOptions, asked: str | list[dict[str, Any]] | None = None
) -> Iterator[Pipeline]:
    """Open a model, and say in a terminal if that takes long; close it at the end.

    ``asked`` is the prompt or the conversation, which is held against the context before.
    """
    from edgedec.loading.capacity import check_prompt
    from edgedec.pipeline import Pipeline

    if asked is not None:
        check_prompt(target, options, asked)
    with _progress.opening(Path(target).name):
        pipeline = Pipeline.open(target, options)
    with pipeline:
        yield pipeline
