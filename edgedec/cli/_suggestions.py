"""Suggestions for a command or an option that does not exist."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence

import click

from edgedec._support.model_path import how_to_fetch, is_hub_name, names_model

# Names that other programs use for an option.
_ELSEWHERE = {
    "--max-tokens": "--max-new-tokens", "--max-length": "--max-new-tokens",
    "--n-predict": "--max-new-tokens", "--num-predict": "--max-new-tokens",
    "--new": "--max-new-tokens", "--ctx-size": "--max-context", "--num-ctx": "--max-context",
    "-c": "--max-context", "--temp": "--temperature", "-t": "--threads", "-s": "--seed",
    "--model-draft": "--draft", "-md": "--draft", "--draft-model": "--draft",
    "--draft-max": "--draft-length", "--quantize": "--weights", "--output": "--out",
    "-o": "--out", "--sys": "--system", "--stop-sequence": "--stop", "-ngl": "--gpu-layers",
    "--n-gpu-layers": "--gpu-layers",
}  # fmt: skip
_ARGUMENTS = {
    "--model": "the model is the first argument", "-m": "the model is the first argument",
    "--prompt": "the prompt is an argument", "-p": "the prompt is an argument",
}  # fmt: skip


def for_command(name: str, known: Sequence[str]) -> str:
    """Return a suggestion for a command that does not exist, as a line."""
    if names_model(name):
        word = shlex.quote(name)
        return f'{word} is a model: edgedec generate {word} "PROMPT", or edgedec chat {word}'
    if is_hub_name(name):
        return how_to_fetch(name, "`edgedec export {} --out DIR`")
    if any(character.isspace() for character in name):
        return f"No such command: to go on with a text, edgedec generate {shlex.quote(name)}"
    return f"No such command '{name}'" + _meant(_near(name, known))


def _near(name: str, known: Sequence[str]) -> list[str]:
    """Return similarly spelt names; without any, those that begin with ``name``."""
    return difflib.get_close_matches(name, known) or [one for one in known if one.startswith(name)]


def for_option(name: str, context: click.Context) -> str:
    """Return a suggestion for an option that this command does not have, as a line."""
    if len(name) == 2 and not name[1].isalnum():
        return 'A text that begins with - goes after --, as in -- "- one"'
    known = [
        option
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in (*parameter.opts, *parameter.secondary_opts)
    ]
    if name in _ARGUMENTS:
        return f"No such option '{name}': {_ARGUMENTS[name]}"
    elsewhere = _ELSEWHERE.get(name)
    if elsewhere in known:
        return f"No such option '{name}'" + _meant([elsewhere])
    long = [option for option in known if option.startswith("--")]
    return f"No such option '{name}'" + _meant(difflib.get_close_matches(name, long, 2))


def _meant(likely: Sequence[str]) -> str:
    return f": did you mean {' or '.join(likely)}?" if likely else ""
