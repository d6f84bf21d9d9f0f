"""Finds, makes or fetches the models that a command line names; says so on stderr."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli._terminal import note

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from edgedec.export import Progress
    from edgedec.library import Library
    from edgedec.library.locate import Located
    from edgedec.library.making import Listener
    from edgedec.library.records import Form, Model


class _Name(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A word whose completion offers the library's models, with ``files`` also demo and files."""

    name = "model"

    def __init__(self, *, files: bool) -> None:
        self._files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return completions; reads nothing but the library's records."""
        from click.shell_completion import CompletionItem

        from edgedec._support.model_path import DEMO

        names = [DEMO] if self._files else []
        with suppress(OSError):
            names += dict.fromkeys(model.name for model in _library().models())
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        # The shell completes paths itself where it is asked to.
        return found if found or not self._files else [CompletionItem(incomplete, type="file")]


MODEL, IN_LIBRARY = _Name(files=True), _Name(files=False)

FORM = [
    click.option("--weights", type=click.Choice(["int4", "int8", "fp16", "fp32"]),
                 help="How the weights of a checkpoint are stored; default: int4."),
    click.option("--calibrated", is_flag=True,
                 help="Calibrate the rounding of int4 weights on texts that the model writes, "
                 "which takes minutes and is closer to the checkpoint; default: round to "
                 "nearest."),
]  # fmt: skip


def form(weights: str | None, calibrated: bool) -> Form | None:
    """Return the form that was asked for; None if none was."""
    from edgedec.library.records import CALIBRATED, PLAIN, Form

    if weights is None and not calibrated:
        return None
    weights = weights or "int4"
    if calibrated and weights != "int4":
        raise click.UsageError(f"--calibrated is for int4: leave it or --weights {weights} out")
    return Form(weights, CALIBRATED if calibrated else PLAIN)


@contextmanager
def listener() -> Iterator[Listener]:
    """Return a listener that prints sentences on stderr, and a bar for each stage."""
    from edgedec.cli import _output
    from edgedec.library.making import Listener

    with ExitStack() as stack:
        bars: list[Progress | None] = []

        def progress(stage: str, done: int, total: int) -> None:
            if not bars:  # made late: huggingface_hub draws a bar of its own while it fetches
                bars.append(stack.enter_context(_output.stages()))
            if bars[0] is not None:
                bars[0](stage, done, total)

        yield Listener(note, progress)


def _library() -> Library:
    from edgedec.library import Library

    return Library()


def matching(word: str) -> list[Model]:
    """Return the models of the library that a word means; InputError if there is none."""
    from edgedec.errors import InputError

    library = _library()
    if found := library.matching(word):
        return found
    names = [model.name for model in library.models()]
    near = difflib.get_close_matches(word, names, 1)
    meant = f"did you mean {near[0]}?" if near else "`edgedec list` shows those there are"
    raise InputError(f"no model {word} in the library: {meant}")


def located(word: str, wanted: Form | None, *, refresh: bool = False) -> Located:
    """Return the model that a word means, made or fetched first where needed; see ``locate``."""
    from edgedec.library.locate import locate

    with listener() as told:
        return locate(word, wanted, _library(), told, refresh=refresh)


def draft_for(target: str | Path) -> Model | None:
    """Return a draft from the library for a target without one, and say so."""
    from edgedec.library import drafts

    found = drafts.find(target, _library())
    if found is not None:
        note(f"draft: {found.name}, from the library; --draft text does without")
    return found


def draft(value: str, target: str | Path, wanted: Form | None) -> str | Path:
    """Return a drafter's name or a draft model's path, as ``_options.open_options`` takes it.

    ``value`` names a drafter, or a model as MODEL names one; ``auto`` finds a draft for the target.
    """
    from edgedec.decoding import drafting

    if value == drafting.AUTO:
        found = draft_for(target)
        return value if found is None else found.path
    if drafting.known(value):
        return value
    near = difflib.get_close_matches(value, drafting.names(), 1)
    if near and not Path(value).exists() and not _library().matching(value):
        raise click.BadParameter(f"no drafter {value!r}: did you mean {near[0]}?")
    return Path(located(value, wanted).path)


def settings(chosen: dict[str, Any]) -> Form | None:
    """Take the options of ``FORM`` out of the values of a command."""
    return form(chosen.pop("weights"), chosen.pop("calibrated"))
