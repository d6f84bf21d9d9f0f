"""Options shared by commands."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgedec.cli import _config, _library, _values
from edgedec.decoding import drafting

if TYPE_CHECKING:
    from edgedec.loading.options import OpenOptions
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


class _DrafterOption(click.Option):
    """``--drafter``, whose help lists the drafters when it is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = (
            f"Way of drafting: {', '.join(_values.drafters())}; default: auto, which is headed"
            " if the target has a head, else hybrid if there is a draft model, else text; none is"
            " plain decoding."
        )
        return super().get_help_record(ctx)


# A drafter's name is accepted as well, as before there was --drafter.
DRAFT = click.option("--draft", type=_values.draft, metavar="MODEL",
                     help="Draft model, given like MODEL: a smaller one of the same family; of a "
                     "bundle its target drafts. Default: the draft that comes with "
                     "MODEL.")  # fmt: skip

# A draft model alone, for commands that choose drafters themselves.
DRAFT_MODEL = click.option("--draft", "draft_model", type=_values.draft_model, metavar="MODEL",
                           help="Draft model, given like MODEL: a smaller one of the same family; "
                           "default: the draft that comes with MODEL.")  # fmt: skip
THREADS = click.option("-t", "--threads", type=_values.THREADS, metavar="N",
                       help="CPU threads; default: one per core, fewer for a small "
                       "model.")  # fmt: skip

# The options for opening a pipeline, except DRAFT.
SETTINGS = [
    click.option("--drafter", cls=_DrafterOption, type=_values.drafter, metavar="NAME"),
    click.option("--draft-length", type=_values.draft_length, default="auto", show_default=True,
                 metavar="auto|N",
                 help="Tokens to draft per round; auto decides by measured cost."),
    click.option("--accept", metavar="RULE",
                 help="Acceptance rule: coupling (default) and match give a seed's own text (match "
                 "up to near-ties, see --batch-invariant), speculative its distribution; bild "
                 "changes both."),
    THREADS,
    click.option("--provider", "providers", multiple=True, metavar="NAME",
                 help="ONNX Runtime execution provider; repeat to add fallbacks."),
    click.option("--max-context", type=click.IntRange(min=2), metavar="TOKENS",
                 help="Most tokens of prompt and output; default: the model's limit."),
    click.option("--draft-context", type=_values.draft_context, metavar="TOKENS",
                 default=drafting.DRAFT_CONTEXT, show_default=True,
                 help="Context window of the draft model; of a longer text it sees the first four "
                 "tokens and the last ones."),
    click.option("--kv-memory", type=_values.size, metavar="SIZE",
                 help="Memory for all key/value caches, such as 512MB; default: no limit."),
    click.option("--plan", default="auto", show_default=True, metavar="auto|none|FILE",
                 help="Plan to follow: auto is the last one that `edgedec plan` made for these "
                 "models on this machine; or a file that it wrote."),
    click.option("--memory", type=_values.memory, metavar="auto|SIZE",
                 help="Limit on the memory of the process, such as 2GB, or auto for what is free. "
                 "Follows a plan that fits if there is one; where the weights do not fit, measures "
                 "once how many of them to keep in memory."),
    click.option("--batch-invariant/--no-batch-invariant", default=None,
                 help="Pad passes, or change llama.cpp's settings, so that a seed's text is the "
                 "same whatever was drafted, including near-ties; refused if none achieve that. "
                 "Default: on for GGUF on the processor where it costs at most 5%, for ONNX "
                 "with 200 MB of weights or more on the processor, if padding achieves it, or with "
                 "64 MB where it is measured to cost a token at most 5%, for "
                 "bundles exported with it, and on openvino, which needs no padding; with --accept "
                 "match only for GGUF and the latter two; never with --drafter tree or a rule that "
                 "does not give a seed's text. Other targets would lose more time than they gain."),
]  # fmt: skip

OPEN = [DRAFT, *SETTINGS]

LOG = click.option("-v", "--verbose", is_flag=True, help="Show the runtime's own log.")
DETAILS = click.option("-v", "--verbose", "verbosity", count=True,
                       help="Show all figures of a text; -vv shows the runtime's own log "
                       "as well.")  # fmt: skip

LOAD = [
    click.option("--format", type=_values.formats("auto"), default="auto", show_default=True,
                 help="Format of the model files; auto takes the fastest one that can run here. "
                 "onnx makes a GGUF file into a bundle in the library first, once."),
    click.option("--device", metavar="NAME",
                 help="A device listed by `edgedec devices`, for both models; openvino is for the "
                 "target only. By default, without a plan or a memory limit, an ONNX target of "
                 "200 MB or more runs on openvino if that is installed and computes its rounds "
                 "faster."),
    click.option("--draft-device", metavar="NAME", help="A device for the draft only."),
    click.option("--runtime-option", cls=_RuntimeOption, multiple=True,
                 metavar="NAME=VALUE"),
    LOG,
]  # fmt: skip

# For commands that write a text, instead of ``LOAD``.
LOAD_AND_WRITE = [*LOAD[:-1], DETAILS]

WORKLOAD = [
    click.option("--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True,
                 help="Sampling temperature; 0 is greedy."),
    click.option("--prompt-tokens", type=click.IntRange(min=1), default=256, show_default=True,
                 metavar="N", help="Tokens of a typical prompt."),
    click.option("--new-tokens", type=click.IntRange(min=2), default=128, show_default=True,
                 metavar="N", help="Tokens of a typical output."),
    click.option("--all", "show_all", is_flag=True, help="Show every plan that was considered."),
]  # fmt: skip


def _declared() -> dict[str, LoadOption]:
    from edgedec.runtimes import registry

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
def runtime_flags() -> list[click.Option]:
    """Return a flag for each option; hidden unless many people set it."""
    from edgedec.runtimes import registry

    found: dict[str, click.Option] = {}
    for info in registry.infos().values():
        formats = "/".join(info.formats).upper()
        for option in info.options:
            found[option.name] = _flag(option, option.name, f"{formats}: {option.help}")
            if option.draft_help:
                name = f"{_DRAFT}{option.name}"
                found[name] = _flag(option, name, f"{formats}: {option.draft_help}")
    return list(found.values())


def group_of(name: str) -> str:
    """Return the group of the help page in which an option of ``runtime_flags`` stands."""
    from edgedec.runtimes import registry

    option = name.removeprefix(_DRAFT)
    formats = {
        format
        for info in registry.infos().values()
        if option in (one.name for one in info.options)
        for format in info.formats
    }
    return "GGUF only" if formats == {"gguf"} else "Device and memory"


def _flag(option: LoadOption, name: str, help: str) -> click.Option:
    draft = name != option.name
    hidden = not option.common or draft
    flag = option.as_given(None, draft=draft)
    kind: Any = None
    if option.type is bool:
        if option.default is None:
            flag = f"{flag}/{option.as_given(False, draft=draft)}"
        return click.Option([flag, name], is_flag=True, default=None, help=help, hidden=hidden)
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.in_bytes:
        kind = _values.size
    elif option.type is int:
        kind = click.IntRange(option.least, option.most)
    metavar = "SIZE" if option.in_bytes else "N" if option.type is int else None
    return click.Option([flag, name], type=kind, metavar=metavar, help=help, hidden=hidden)


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
    from edgedec.loading.options import OpenOptions

    if chosen.get("verbose") or chosen.get("verbosity", 0) > 1:
        logging.basicConfig(format="%(message)s")  # standard error
        logging.getLogger("edgedec").setLevel(logging.DEBUG)
    chosen = {**chosen, **dict(chosen.get("runtime_option", ())), **more}
    names = OpenOptions.names()
    given = {name: value for name, value in chosen.items() if value not in (None, ())}
    return OpenOptions(**{name: value for name, value in given.items() if name in names})


def registry_flag(name: str) -> str:
    """Return the flag of an option for the draft alone."""
    from edgedec.runtimes import registry

    return registry.flag(name, None, draft=True)
