"""The arguments of a command: a model first, then a prompt.

::

    edgedec generate PROMPT                  the demo pair continues it
    edgedec generate MODEL PROMPT
    edgedec generate MODEL                   the prompt comes from standard input
    edgedec generate -m MODEL PROMPT         the same; no word is taken for a model
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from edgedec._support import user_folders
from edgedec._support.model_path import DEMO, how_to_fetch, is_hub_name, names_model
from edgedec.cli import _config
from edgedec.cli._library import MODEL
from edgedec.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
_TYPED = "edgedec.typed"
_WHAT = f"a folder that `edgedec export` wrote, a .gguf file, a model of the library, or {DEMO}"
option = click.option(
    "-m", "--model", "--bundle", "--target", "named",
    metavar="MODEL",
    help=f"The same as MODEL: {_WHAT}.",
)  # fmt: skip


def model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument MODEL, by default the demo, as ``bundle``."""

    @functools.wraps(command)
    def with_model(model: str | None, named: str | None, **values: Any) -> None:
        if model is not None and named is not None:
            raise _twice(model, named)
        word = click.get_current_context().meta[_TYPED] = named or model or default()
        command(bundle=there(word), **values)

    return click.argument("model", required=False, type=MODEL)(option(with_model))


def model_and_prompt(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command MODEL and PROMPT, as ``bundle`` and ``prompt``, which may be None.

    The prompt is not required if ``messages`` or ``prompts`` is given.
    """

    @functools.wraps(command)
    def with_both(words: Sequence[str], named: str | None, **values: Any) -> None:
        elsewhere = [name for name in ("messages", "prompts") if values.get(name) is not None]
        bundle, prompt = meant(words, named)
        if prompt is not None and elsewhere:
            raise click.UsageError("give one of PROMPT, --messages and --prompts")
        command(bundle=there(bundle), prompt=prompt, **values)

    decorated = option(with_both)
    words = click.argument("words", nargs=-1, metavar="[MODEL] [PROMPT]", type=MODEL)
    return words(decorated)


def meant(words: Sequence[str], named: str | None) -> tuple[str, str | None]:
    """Return the model and the prompt given by the words of a command line.

    Args:
        words: the arguments that are not options.
        named: the model that an option names; then all words are the prompt.

    Raises:
        click.UsageError: an unquoted prompt, a model that is named twice, or a hub's name.

    """
    if named is not None:
        if len(words) == 2 and names_model(words[0]):
            raise _twice(words[0], named)
        if len(words) > 1:
            raise unquoted("generate", ["-m", named], words)
        return named, next(iter(words), None)
    if not words:
        return default(), None
    first = words[0]
    a_model = names_model(first) or in_library(first) != first
    if len(words) == 1:
        if a_model:
            _check_there(first)
            return first, None
        if is_hub_name(first) and any(character.isdigit() for character in first):
            raise click.UsageError(
                how_to_fetch(first, "`edgedec export {} --out DIR`")
                + f"; if it is the prompt: edgedec generate {DEMO} {first}"
            )
        return default(), first
    like_one = a_model or _like_a_path(first) or _on_disk(first)
    if len(words) == 2 and (like_one or _in_quotes(words[1])):
        return first, words[1]
    if a_model:
        raise unquoted("generate", [first], words[1:])
    raise unquoted("generate", [], words)


def typed() -> str:
    """Return the model as the user typed it, for a command that ``model`` decorates."""
    return str(click.get_current_context().meta[_TYPED])


def default() -> str:
    """Return the default model: the configured one for commands that read the configuration."""
    context = click.get_current_context(silent=True)
    if context is None or context.info_name not in _config.COMMANDS:
        return DEMO
    return str(_config.read().get("model", DEMO))


def in_library(word: str) -> str:
    """Return the path of the library's model of this name or id; any other word as it is."""
    if word == DEMO or word.startswith(("./", "../", "/")):
        return word
    if not user_folders.library().is_dir() or _on_disk(word):
        return word
    from edgedec.library import Library

    found = Library().find(word)
    return word if found is None else str(found.path)


def there(word: str) -> str:
    """Return the path of a model, as ``in_library`` does; InputError if there is none."""
    found = in_library(word)
    if found == word != DEMO and not _on_disk(word) and not is_hub_name(word):
        from edgedec.library import Library
        from edgedec.library.locate import unknown

        raise InputError(unknown(word, Library()))
    return found


def _on_disk(word: str) -> bool:
    try:
        return word != "" and Path(word).exists()
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return False


def _like_a_path(word: str) -> bool:
    """Return whether a word that names no model was probably meant as one."""
    return is_hub_name(word) or word.startswith(("./", "../", "/", "~"))


def _in_quotes(word: str) -> bool:
    """Return whether a word must have been quoted, which makes the word before it the model."""
    return any(character.isspace() for character in word)


def _check_there(model: str) -> None:
    """Refuse a missing file before waiting for standard input."""
    if model != DEMO and not Path(in_library(model)).exists():
        raise click.UsageError(f"{model}: no such file")


def _twice(model: str, named: str) -> click.UsageError:
    return click.UsageError(f"the model is given twice, {model} and {named}: leave one out")


def unquoted(name: str, before: Sequence[str], words: Sequence[str]) -> click.UsageError:
    """Return the error for an unquoted prompt, with the command and the quoted one to paste."""
    prompt = " ".join(words)
    command = " ".join(["edgedec", name, *map(shlex.quote, [*before, prompt])])
    what = "" if before else f"{shlex.quote(words[0])} is not a model ({_WHAT}), and "
    return click.UsageError(f"{what}a prompt of several words goes in quotes: {command}")
