"""The configuration file, in TOML: defaults for the commands that generate text."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from typing import Any

COMMANDS = ("chat", "generate", "run")
_MAX_BYTES = 1 << 16


def _text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _threads(value: Any) -> bool:
    return type(value) is int and 1 <= value <= 1024


def _memory(value: Any) -> bool:
    return _text(value) or (type(value) is int and value > 0)


# Settings by name: a description, and a check of the value.
SETTINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("the default model, such as demo or a name in the library", _text),
    "draft": ("--draft", _text),
    "drafter": ("--drafter", _text),
    "threads": ("--threads, 1 to 1024", _threads),
    "memory": ('--memory, such as "2GB" or "auto"', _memory),
}


def read() -> dict[str, Any]:
    """Return the settings of the file, {} without a file; InputError if it is invalid."""
    from edgedec._support import user_folders
    from edgedec._support.files import open_regular
    from edgedec.errors import InputError

    file = user_folders.config_file()
    try:
        with open_regular(file) as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise InputError(f"{file}: expected at most {_MAX_BYTES >> 10} KiB")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"{file} is not TOML: {error}") from None
    for name, value in found.items():
        _check(str(file), name, value)
    return found


def _check(file: str, name: str, value: Any) -> None:
    from edgedec._support.fields import one_line
    from edgedec.errors import InputError

    if name not in SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, 1)
        known = f"did you mean {near[0]}?" if near else f"expected {', '.join(SETTINGS)}"
        raise InputError(f"{file}: no setting {one_line(name)}: {known}")
    what, fits = SETTINGS[name]
    if not fits(value):
        raise InputError(f"{file}: {name} is {one_line(repr(value))}, expected {what}")


def options() -> dict[str, Any]:
    """Return the defaults of options, as click takes them."""
    found = {name: value for name, value in read().items() if name != "model"}
    if "draft" in found:
        from edgedec.decoding import drafting

        if drafting.known(found["draft"]):  # as before there was a setting of that name
            found["drafter"] = found.pop("draft")
    return found
