"""Options shared by commands."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgedec.cli import _values
from edgedec.decoding import drafting

if TYPE_CHECKING:
    from edgedec.loading.build import OpenOptions
    from edgedec.records.adapter import LoadOption

F = TypeVar("F", bound=Callable[..., Any])
_OPEN_FIELDS = ("draft_length", "threads", "max_context", "draft_context", "kv_memory", "accept",
                "batch_invariant", "plan", "memory")  # fmt: skip


class _DraftOption(click.Option):
    """``--draft``, whose help lists the drafters when it is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = (
            f"Drafter: {', '.join(_values.drafts())}; or a draft model's file, or a bundle (or"
            " demo) whose target drafts. auto is hybrid if there is a draft model, else text."
        )
        return super().get_help_record(ctx)


DRAFT = click.option("--draft", cls=_DraftOption, type=_values.draft, default="auto",
                     show_default=True, metavar="NAME|FILE.gguf")  # fmt: skip

# A draft model alone, for commands that choose drafters themselves.
DRAFT_MODEL = click.option("--draft", "draft_model", type=_values.draft_model, metavar="FILE",
                           help="A draft model's GGUF file, or a bundle whose target drafts; "
                           "default: the draft that comes with MODEL.")  # fmt: skip
THREADS = click.option("--threads", type=click.IntRange(1, 1024),
                       help="CPU threads; default: one per core, fewer for a small "
                       "model.")  # fmt: skip

# The options for opening a pipeline, except DRAFT.
SETTINGS = [
    click.option("--drafter", type=_values.Listed(_values.drafts), metavar="NAME",
                 help="Drafter to use with a draft model given as a file; default: auto."),
    click.option("--draft-length", type=_values.draft_length, default="auto", show_default=True,
                 metavar="auto|N",
                 help="Tokens to draft per round; auto decides by measured cost."),
    click.option("--accept", metavar="RULE",
                 help="Acceptance rule: coupling (default) and match give a seed's own text, "
                 "speculative its distribution; typical and bild change both."),
    THREADS,
    click.option("--provider", "providers", multiple=True, metavar="NAME",
                 help="ONNX Runtime execution provider; repeat to add fallbacks."),
    click.option("--max-context", type=click.IntRange(min=2), metavar="TOKENS",
                 help="Most tokens of prompt and output together; default: the model's limit."),
    click.option("--draft-context", type=_values.draft_context, metavar="auto|TOKENS",
                 default=drafting.AUTO, show_default=True,
                 help="Context window of the draft model; of a longer text it sees the first four "
                 "tokens and the last ones. auto starts with 512 and adapts to what is faster."),
    click.option("--kv-memory", type=_values.size, metavar="SIZE",
                 help="Memory for all key/value caches, such as 512MB; default: no limit."),
    click.option("--plan", default="auto", show_default=True, metavar="auto|none|FILE",
                 help="Plan to follow: auto is the last one that `edgedec plan` made for these "
                 "models on this machine; or a file that it wrote."),
    click.option("--memory", type=_values.memory, metavar="auto|SIZE",
                 help="Limit on the memory of the process, such as 2GB, or auto for what is free. "
                 "Makes a plan that fits, measuring first if needed; with --plan none the limit "
                 "is enforced without a plan."),
    click.option("--batch-invariant/--no-batch-invariant", default=None,
                 help="Pad passes so that a seed's text is the same whatever was drafted, "
                 "including near-ties; refused if no padding achieves that. Default: on for ONNX "
                 "with 200 MB of weights or more on the processor, if padding achieves it, for "
                 "bundles exported with it, and on openvino, which needs no padding; never with "
                 "--draft tree, or with a rule for --accept that does not give a seed's text. A "
                 "smaller target would lose more time than it gains. fp32 weights hardly need it."),
]  # fmt: skip

OPEN = [DRAFT, *SETTINGS]

LOAD = [
    click.option("--format", type=_values.formats("auto"), default="auto", show_default=True,
                 help="Format of the model files; auto takes the fastest one that can run here."),
    click.option("--device", metavar="NAME",
                 help="A device listed by `edgedec devices`, for both models; openvino is for the "
                 "target only. By default, without a plan or a memory limit, an ONNX target of "
                 "200 MB or more runs on openvino if that is installed and computes its rounds "
                 "faster."),
    click.option("--draft-device", metavar="NAME", help="A device for the draft only."),
    click.option("-v", "--verbose", is_flag=True, help="Show the runtime's own log."),
]  # fmt: skip

WORKLOAD = [
    click.option("--temperature", type=click.FloatRange(min=0), default=0.0, show_default=True,
                 help="Sampling temperature; 0 is greedy."),
    click.option("--prompt-tokens", type=click.IntRange(min=1), default=256, show_default=True,
                 metavar="N", help="Tokens of a typical prompt."),
    click.option("--new-tokens", type=click.IntRange(min=2), default=128, show_default=True,
                 metavar="N", help="Tokens of a typical output."),
    click.option("--all", "show_all", is_flag=True, help="Show every plan that was considered."),
]  # fmt: skip


class LoadCommand(click.Command):
    """A command with ``LOAD``, which also takes the options that runtimes declare."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all options, with the runtimes' before ``--verbose``, which ends ``LOAD``."""
        own = super().get_params(ctx)
        names = {name for parameter in own for name in parameter.opts}
        runtimes = [option for option in _of_runtimes() if not names & {*option.opts}]
        here = next(index for index, one in enumerate(own) if one.name == "verbose")
        return [*own[:here], *runtimes, *own[here:]]


@functools.cache
def _of_runtimes() -> list[click.Option]:
    """Import the runtimes, for a command's help and run, but not for the list of commands."""
    from edgedec.runtimes import registry

    found: dict[str, click.Option] = {}
    for info in registry.infos().values():
        formats = "/".join(info.formats).upper()
        for option in info.options:
            found[option.name] = _of_runtime(option, option.name, f"{formats}: {option.help}")
            if option.draft_help:
                name = f"draft_{option.name}"
                found[name] = _of_runtime(option, name, f"{formats}: {option.draft_help}")
    return list(found.values())


def _of_runtime(option: LoadOption, name: str, help: str) -> click.Option:
    draft = name != option.name
    flag = option.as_given(None, draft=draft)
    if option.type is bool:
        if option.default is None:
            flag = f"{flag}/{option.as_given(False, draft=draft)}"
        return click.Option([flag, name], is_flag=True, default=None, help=help)
    if option.choices:
        return click.Option([flag, name], type=click.Choice(option.choices), help=help)
    if option.in_bytes:
        return click.Option([flag, name], type=_values.size, metavar="SIZE", help=help)
    if option.type is int:
        bounds = click.IntRange(option.least, option.most)
        return click.Option([flag, name], type=bounds, metavar="N", help=help)
    return click.Option([flag, name], help=help)


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


def texts(count: int, least_tokens: int) -> list[Callable[[F], F]]:
    """Return options for prompts and lengths, for commands that compare texts."""
    return [
        click.option("--prompts", type=_values.FILE, metavar="FILE.jsonl",
                     help='Lines such as {"prompt": "Hello"}; default: heads of functions that '
                     "the demo pair was not trained on."),
        click.option("--count", type=click.IntRange(min=1), default=count, show_default=True,
                     help="How many of the default prompts."),
        click.option("-n", "--max-new-tokens", type=click.IntRange(min=least_tokens), default=128,
                     show_default=True, metavar="N", help="Tokens to generate for each."),
    ]  # fmt: skip


def options(*groups: list[Callable[[F], F]]) -> Callable[[F], F]:
    """Return a decorator that adds all options of these groups, in order."""

    def decorate(command: F) -> F:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def open_options(chosen: dict[str, Any]) -> OpenOptions:
    """Return ``OpenOptions`` from the values of ``OPEN``; notes a lossy rule on stderr."""
    from edgedec.decoding.acceptance import rule
    from edgedec.loading.build import OpenOptions

    if (accept := chosen["accept"]) is not None and not rule(accept).lossless:
        click.echo(f"note: --accept {accept} is not lossless: it changes the text", err=True)
    named = isinstance(chosen["draft"], str)
    if named and chosen["drafter"] is not None:
        raise click.UsageError("--drafter goes with --draft FILE; give the drafter to --draft")
    drafter = chosen["draft"] if named else chosen["drafter"] or "auto"
    unused = [] if named else ["--draft FILE"]
    unused += [f"--draft-{name.replace('_', '-')}" for name in _of_draft(chosen)]
    if unused and drafter != "auto" and not drafting.info(drafter).needs_model:
        raise click.UsageError(
            f"the drafter {drafter} takes no draft model: leave {' and '.join(unused)} out"
        )
    options = OpenOptions(
        draft=drafter,
        draft_model=None if named else chosen["draft"],
        providers=tuple(chosen["providers"]),
        **{name: chosen[name] for name in _OPEN_FIELDS},
    )
    return load_options(options, chosen)


def load_options(options: OpenOptions, chosen: dict[str, Any]) -> OpenOptions:
    """Return ``options`` with the values of ``LOAD`` and of the runtimes' options."""
    from edgedec.runtimes import registry

    if chosen.get("verbose"):
        logging.basicConfig(format="%(message)s")  # standard error
        logging.getLogger("edgedec").setLevel(logging.DEBUG)
    names = ("format", "device", *registry.options())
    given = {name: chosen[name] for name in names if chosen.get(name) is not None}
    fields = {field.name for field in dataclasses.fields(options)}
    added = {name: given.pop(name) for name in [*given] if name not in fields}
    options = dataclasses.replace(options, **given, runtime_options=added)
    draft = _of_draft(chosen)
    load = options.shared().changed(**draft) if draft else None
    return dataclasses.replace(options, draft_load=load)


def _of_draft(chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given for the draft alone."""
    from edgedec.runtimes import registry

    own = {name: chosen.get(f"draft_{name}") for name in ("device", *registry.options())}
    return {name: value for name, value in own.items() if value is not None}
