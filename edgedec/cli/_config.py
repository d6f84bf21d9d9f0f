"""The configuration file, in TOML: defaults for the commands that generate text."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from edgedec._support import user_folders
from edgedec._support.atomic import replacing
from edgedec._support.fields import one_line
from edgedec._support.files import read_regular
from edgedec._support.options import declared
from edgedec.decoding import drafting
from edgedec.decoding.drafting import AUTO, info
from edgedec.decoding.params import SamplingParams
from edgedec.errors import InputError
from edgedec.generation.keywords import with_changes
from edgedec.generation.options import GenerateOptions
from edgedec.loading.options import names_drafter

COMMANDS = ("chat", "generate", "run")
_MAX_BYTES = 1 << 16
# A smaller number of bytes is a slip: of gigabytes, or of megabytes.
FEW_BYTES = 1_000_000


def _text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _threads(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 1024


def _memory(value: Any) -> bool:
    return _text(value) or (type(value) is int and value >= FEW_BYTES)


def _of_texts(name: str) -> tuple[str, Callable[[Any], bool]]:
    """Return the setting of an option that a number gives, checked as the option is."""

    def fits(value: Any) -> bool:
        if type(value) not in (int, float):
            return False
        with_changes(GenerateOptions(), {name: value})
        return True

    return f"--{name.replace('_', '-')}, a number", fits


# Options of a text that are settings, by their names in Python.
_NUMBERS = (*(one for one in declared(SamplingParams) if one != "logit_bias"), "max_new_tokens")
# Settings by name: a description, and a check of the value, which may raise InputError.
SETTINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("the default model, such as demo or a name in the library", _text),
    "draft": ("--draft", _text),
    "drafter": ("--drafter", _text),
    "spec": ("--spec, such as lookup:n=8,head:k=4", _text),
    "threads": ("--threads, 1 to 1024", _threads),
    "memory": ('--memory, such as "2GB" or "auto"', _memory),
    "system": ("--system, for run and chat", _text),
    **{name: _of_texts(name) for name in _NUMBERS},
}


def file_name() -> str:
    """Return the path of the file."""
    return str(user_folders.config_file())


def read() -> dict[str, Any]:
    """Return the settings of the file, {} without a file; InputError if it is invalid."""
    return _parsed(_data())


def change(
    name: str, value: str | None, parsed: Callable[[str, str], Any] = lambda name, value: value
) -> Any:
    """Set or, with None, remove a setting; return its value. Other lines of the file stay.

    Args:
        value: as on the command line.
        parsed: returns the number that an option of this name makes of it.

    Raises:
        InputError: the value is not one, or the file cannot be read, written or changed by lines.

    """
    data, file = _data(), Path(file_name())
    given = None if value is None else _typed(name, value, parsed)
    expected = {key: found for key, found in _parsed(data).items() if key != name}
    its_line = re.compile(rf"\s*{name}\s*=")
    lines = [line for line in data.decode("utf-8").splitlines() if not its_line.match(line)]
    if given is not None:
        expected[name] = given
        lines.insert(0, f"{name} = {json.dumps(given, ensure_ascii=False)}")  # before any table
    changed = "".join(f"{line}\n" for line in lines).encode()
    try:
        fits = _parsed(changed) == expected
    except InputError:
        fits = False
    if not fits:
        raise InputError(f"{file}: its {name} is not in a line of its own: change it by hand")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as stream:
            stream.write(changed)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None
    return given


def _typed(name: str, value: str, parsed: Callable[[str, str], Any]) -> Any:
    """Return a value of the command line as TOML has it."""
    given: Any = int(value) if name == "threads" and value.isdecimal() else value
    if name in _NUMBERS:
        given = parsed(name, value)
    _check("edgedec config", name, given)
    return given


def _data() -> bytes:
    """Return the file's bytes; none without a file."""
    file = file_name()
    try:
        data = read_regular(Path(file), _MAX_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    if data is None:
        raise InputError(f"{file}: expected at most {_MAX_BYTES >> 10} KiB")
    return data


def _parsed(data: bytes) -> dict[str, Any]:
    file = file_name()
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not TOML: {error}") from None
    for name, value in found.items():
        _check(file, name, value)
    return found


def _check(file: str, name: str, value: Any) -> None:
    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        known = f"did you mean {near[0]}?" if near else f"expected {', '.join(SETTINGS)}"
        raise InputError(f"{file}: no setting {one_line(name)}: {known}")
    what, fits = SETTINGS[name]
    try:
        fitting = fits(value)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if not fitting:
        raise InputError(f"{file}: {name} is {one_line(repr(value))}, expected {what}")


def options(command: str) -> dict[str, Any]:
    """Return the defaults of a command's options, as click takes them.

    A system message is for commands that answer: ``generate`` would no longer continue its prompt.
    A drafter's name as ``draft``, as before there was a setting ``drafter``, is given as that.

    Raises:
        InputError: the file is invalid, or names two drafters.

    """
    others = ("model", "system") if command == "generate" else ("model",)
    found = {name: value for name, value in read().items() if name not in others}
    if names_drafter(found.get("draft")):
        draft = found.pop("draft")
        drafter = found.setdefault("drafter", draft)
        if draft not in (AUTO, drafter):
            raise InputError(
                f"{user_folders.config_file()}: draft = {draft!r} names a drafter as"
                f" drafter = {drafter!r} does: give one"
            )
    return found


def one_drafter(chosen: dict[str, Any]) -> None:
    """Make ``--spec`` of a command the value of ``--drafter``; the command line has precedence.

    Raises:
        click.UsageError: both are given in one place.

    """
    spec, drafter = chosen.get("spec"), chosen.get("drafter")
    if spec is None:
        return
    source = click.get_current_context().get_parameter_source
    sources = source("spec"), source("drafter")
    chosen["spec"] = None
    if drafter is None or sources == (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP):
        chosen["drafter"] = drafting.of_spec(spec)
    elif sources != (ParameterSource.DEFAULT_MAP, ParameterSource.COMMANDLINE):
        raise click.UsageError("--spec and --drafter exclude each other: give --spec")


def settled(draft: Any, drafter: str | None) -> tuple[Any, str | None]:
    """Return ``--draft`` and ``--drafter``, less what the file says against the command line.

    A draft model and a drafter that uses one go together, wherever each is from.
    """
    if draft is None or drafter is None:
        return draft, drafter
    source = click.get_current_context().get_parameter_source
    sources = source("draft"), source("drafter")
    together = not names_drafter(draft) and (drafter == AUTO or info(drafter).needs_model)
    if not together and sources == (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP):
        return draft, None
    if not together and sources == (ParameterSource.DEFAULT_MAP, ParameterSource.COMMANDLINE):
        return None, drafter
    return draft, drafter


def typed(name: str, value: Any) -> Any:
    """Return the value of an option if the command line gives it; None if the file does."""
    source = click.get_current_context().get_parameter_source(name)
    return None if source == ParameterSource.DEFAULT_MAP else value
