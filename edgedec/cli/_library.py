"""Finds, makes or fetches the models that a command line names; reports it on stderr."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.model_path import DEMO, OWN_DRAFT, is_gguf, names_model, ready
from edgedec.cli._flags import flags
from edgedec.cli._terminal import note
from edgedec.decoding import drafting
from edgedec.errors import InputError
from edgedec.records.function_options import PULL

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from edgedec.export import Progress
    from edgedec.library import Library
    from edgedec.library.locate import Located, Query
    from edgedec.library.making import Listener
    from edgedec.library.records import Form, Model


class _Name(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A model's name; completes the library's models, and with ``files`` demo and files as well."""

    name = "model"

    def __init__(self, *, files: bool) -> None:
        self._files = files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return completions; reads nothing but the library's records."""
        from click.shell_completion import CompletionItem

        names = [DEMO] if self._files else []
        with suppress(OSError):
            names += dict.fromkeys(model.name for model in library().models())
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        # The shell completes paths itself.
        return found if found or not self._files else [CompletionItem(incomplete, type="file")]


MODEL, IN_LIBRARY = _Name(files=True), _Name(files=False)

CALIBRATED, NAME = flags(PULL, ("calibrated", "name"))
FORM = flags(PULL, ("weights", "calibrated", "max_kl"))


def form(chosen: dict[str, Any]) -> Form | None:
    """Remove the options of ``FORM`` from a command's values, and return the requested form."""
    from edgedec.library.records import Form

    weights, calibrated, max_kl = (chosen.pop(name) for name in ("weights", "calibrated", "max_kl"))
    try:
        return Form.requested(weights, calibrated, max_kl)
    except InputError as error:
        raise click.UsageError(f"--{error}".replace("weights", "--weights")) from None


@contextmanager
def listener() -> Iterator[Listener]:
    """Return a listener that prints sentences on stderr, and a bar or lines for each stage."""
    from edgedec.cli import _progress
    from edgedec.library.making import Listener

    with ExitStack() as stack:
        bars: list[Progress] = []

        def progress(stage: str, done: int, total: int) -> None:
            if not bars:  # created late, since huggingface_hub draws its own bar while fetching
                bars.append(stack.enter_context(_progress.stages()))
            bars[0](stage, done, total)

        yield Listener(note, progress, None if sys.stderr.isatty() else progress)


def library() -> Library:
    """Return the user's library."""
    from edgedec.library import Library

    return Library()


def matching(word: str) -> list[Model]:
    """Return the library's models that match a word; InputError if there is none."""
    models = library()
    if found := models.matching(word):
        return found
    if names_model(word):
        quoted = shlex.quote(word)
        raise InputError(f"{word} is not in the library: `edgedec inspect {quoted}` shows it")
    names = [model.name for model in models.models()]
    near = difflib.get_close_matches(word, names, 1)
    meant = f"did you mean {near[0]}?" if near else "`edgedec list` lists the models"
    raise InputError(f"no model {word} in the library: {meant}")


def one(word: str) -> Model:
    """Return the one model that matches a word; InputError if there is none, or several."""
    from edgedec.library.records import several

    found = matching(word)
    if len(found) > 1:
        raise InputError(several(word, found))
    return found[0]


def located(word: str | Path, query: Query | None = None) -> Located:
    """Return the model that a word names, after making or fetching it if needed; see ``locate``."""
    from edgedec.library.locate import ANY, locate

    with listener() as on_event:
        return locate(str(word), library(), on_event, query or ANY)


def path(word: str | Path, format: str | None = None) -> str:
    """Return the path of the model that a word names, as ``located`` finds it.

    ``format`` is the value of --format, for which a GGUF file may be made into a bundle.
    """
    there = ready(word)
    if there is not None and not (format is not None and is_gguf(there)):
        return str(there)
    from edgedec.library.locate import Query

    return str(located(word, Query(format=format)).path)


def draft_path(
    word: str | Path | None, target: str | Path, format: str | None = None
) -> Path | None:
    """Return the path of a draft model, which is given like a target; warns if it is the target."""
    if word is None:
        return None
    found = Path(path(word, format))
    same = found.exists() and Path(target).exists() and found.samefile(target)
    if same or str(found) == str(target):
        note(f"warning: {OWN_DRAFT}")
    return found


def suggest(word: str | Path, path: str | Path, draft: str | Path | None = None) -> None:
    """Print on stderr the command that comes next for a model, which the user calls ``word``."""
    command = ["edgedec", "chat", str(word)]
    if path == DEMO:  # which was trained on code, and answers nothing
        command = ["edgedec", "generate", str(word), "def __lt__(self, other):"]
    elif not _chats(path):
        command = ["edgedec", "generate", str(word), "Once upon a time"]
    command += [] if draft is None else ["--draft", str(draft)]
    note(f"next: {shlex.join(command)}")


def _chats(path: str | Path) -> bool:
    """Return whether a model has a chat template."""
    from edgedec.bundle import Bundle
    from edgedec.bundle.chat import Chat
    from edgedec.gguf import GgufHeader

    if is_gguf(path):
        return GgufHeader.read(Path(path)).text("tokenizer.chat_template") is not None
    return Chat.of(Bundle.open(path)).template


def draft(value: str, query: Query) -> str | Path:
    """Return a draft model's path, as ``_options.open_options`` takes it, or a drafter's name.

    ``value`` is a model as for MODEL. It gets the form and the format of ``query``.
    """
    if drafting.known(value):
        return value
    near = difflib.get_close_matches(value, drafting.names(), 1)
    if near and not Path(value).exists() and not library().matching(value):
        raise click.BadParameter(drafting.no_drafter(value, f"did you mean {near[0]}?"))
    from edgedec.library.locate import Query

    return Path(located(value, Query(query.form, format=query.format)).path)


def query(chosen: dict[str, Any], *, refresh: bool = False) -> Query:
    """Remove the options of ``FORM`` and ``NAME`` from a command's values, and return the query."""
    from edgedec.library.locate import Query

    return Query(form(chosen), chosen.pop("name"), refresh=refresh, format=chosen["format"])
