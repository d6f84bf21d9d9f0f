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
from typing import Any, TypeVar

import click

from edgedec._support.model_path import (
    DEMO,
    KINDS,
    exists,
    is_gguf,
    is_hub_name,
    names_model,
    ollama_name,
)
from edgedec.cli import _config
from edgedec.cli._library import MODEL
from edgedec.cli._values import in_library

F = TypeVar("F", bound=Callable[..., Any])
option = click.option(
    "-m", "--model", "--bundle", "--target", "named",
    metavar="MODEL",
    help=f"The same as MODEL: {KINDS}.",
)  # fmt: skip


def model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument MODEL, by default the demo, as ``bundle``: the word.

    The command finds its path by ``_library.path``, after it has checked its other options: a
    checkpoint is converted and a hub's model fetched then.
    """

    @functools.wraps(command)
    def with_model(model: str | None, named: str | None, **values: Any) -> None:
        if model is not None and named is not None:
            raise _twice(model, named)
        command(bundle=named or model or default(), **values)

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
        command(bundle=bundle, prompt=prompt, **values)

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
    a_model = names_model(first) or in_library(first)
    if len(words) == 1:
        if a_model:
            _check_there(first)
            return first, None
        _check_a_prompt(first)
        return default(), first
    like_one = a_model or _like_a_path(first) or exists(first)
    if len(words) == 2 and (like_one or any(character.isspace() for character in words[1])):
        return first, words[1]
    if a_model:
        raise unquoted("generate", [first], words[1:])
    raise unquoted("generate", [], words)


def _check_a_prompt(word: str) -> None:
    """Refuse a word that is more probably a model than a text: a name with a digit in it."""
    if not any(character.isdigit() for character in word):
        return
    as_prompt = f"edgedec generate {DEMO} {shlex.quote(word)}"
    if elsewhere := ollama_name(word):
        raise click.UsageError(f"{elsewhere}; a prompt: {as_prompt}")
    if is_hub_name(word):
        raise click.UsageError(
            f"{word} may be a model or the prompt: give edgedec generate -m {shlex.quote(word)},"
            f" which fetches it from the hub and reads a prompt, or {as_prompt}"
        )


def default() -> str:
    """Return the default model: the configured one for commands that read the configuration."""
    context = click.get_current_context(silent=True)
    if context is None or context.info_name not in _config.COMMANDS:
        return DEMO
    return str(_config.read().get("model", DEMO))


def _like_a_path(word: str) -> bool:
    """Return whether a word that names no model was probably meant as one."""
    return is_hub_name(word) or bool(ollama_name(word)) or word.startswith(("./", "../", "/", "~"))


def _check_there(model: str) -> None:
    """Refuse a missing file before waiting for standard input."""
    if is_gguf(model) and not exists(model) and ":" not in model:  # org/name:FILE is on a hub
        raise click.UsageError(f"{model}: no such file")


def _twice(model: str, named: str) -> click.UsageError:
    return click.UsageError(f"the model is given twice, {model} and {named}: leave one out")


def unquoted(name: str, before: Sequence[str], words: Sequence[str]) -> click.UsageError:
    """Return the error for an unquoted prompt, with the command and the quoted one to paste."""
    prompt = " ".join(words)
    command = " ".join(["edgedec", name, *map(shlex.quote, [*before, prompt])])
    what = "" if before else f"{shlex.quote(words[0])} is not a model ({KINDS}), and "
    return click.UsageError(f"{what}a prompt of several words goes in quotes: {command}")
