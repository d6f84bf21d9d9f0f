"""The types of options' values."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from edgedec._support import user_folders
from edgedec._support.amounts import in_bytes, meant
from edgedec._support.model_path import DEMO, exists, is_gguf, is_hub_name, ollama_name
from edgedec._support.ready_path import ready_onnx
from edgedec.cli._config import FEW_BYTES
from edgedec.decoding import drafting
from edgedec.errors import InputError
from edgedec.runtimes import registry

AUTO_MEMORY = "auto"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\"}


def size(value: str | int) -> int:
    """Parse a size in bytes, such as 512MB, 1.5GiB, 300000B or 2000000000."""
    count = in_bytes(str(value))
    if count is None:
        raise click.BadParameter(f"{value!r}: expected a size such as 512MB or 1.5GiB")
    # Nobody means so few bytes, and a type is also called with what it has returned.
    if isinstance(value, str) and count < FEW_BYTES and value.strip()[-1:] in "0123456789":
        likely = meant(value.strip())
        raise click.BadParameter(f"{value!r} is a number of bytes: did you mean {likely}?")
    return count


def bias(value: str | tuple[int, float]) -> tuple[int, float]:
    """Parse ``ID=VALUE``: a token id and the number added to its logit."""
    if isinstance(value, tuple):
        return value
    try:
        token, amount = value.split("=")
        return int(token), float(amount)
    except ValueError:
        raise click.BadParameter(
            f"{value!r}: expected a token id and a number, as 17=-2.5"
        ) from None


def text(value: str) -> str:
    """Return command-line words as text, since terminals send UTF-8 whatever the locale says."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # bytes that are invalid in this locale appear as escapes
        with suppress(UnicodeError):
            return os.fsencode(value).decode("utf-8")
    return value


def stop_text(value: str) -> str:
    """Parse a stop string, in which ``\\n``, ``\\t`` and ``\\\\`` are escapes."""
    return re.sub(r"\\([nt\\])", lambda found: ESCAPES[found[1]], text(value))


def schema(value: str | Path) -> str | Path:
    """Parse a JSON Schema: a file, or an object in JSON."""
    text = str(value)
    if not text.lstrip().startswith("{"):
        found: Path = FILE.convert(text, None, None)
        return found
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(
            f'expected a file, or JSON such as {{"type": "object"}}: {error}'
        ) from None
    return text


def memory(value: str | int) -> int | str:
    """Parse ``auto`` or bytes."""
    return AUTO_MEMORY if value == AUTO_MEMORY else size(value)


def draft_length(value: str | int) -> int | str:
    """Parse ``auto`` or a number of tokens."""
    if value == drafting.AUTO:
        return drafting.AUTO
    if not re.fullmatch("[0-9]{1,3}", str(value)):
        raise click.BadParameter(f"{value!r}: expected auto or a number of tokens, 0 to 999")
    return int(value)


def draft_context(value: str | int) -> int:
    """Parse a number of tokens."""
    usual = f"leave it out for {drafting.DRAFT_CONTEXT}, or give a number of tokens"
    if value == drafting.AUTO:
        raise click.BadParameter(f"auto was removed: {usual}")
    if not re.fullmatch("[0-9]{1,9}", str(value)) or int(value) < 2:
        raise click.BadParameter(f"{value!r}: expected a number of tokens, 2 or more")
    return int(value)


def drafters() -> list[str]:
    """Return the names that ``--drafter`` takes."""
    return [drafting.AUTO, *drafting.names()]


def draft(value: str | Path) -> str | Path:
    """Parse a drafter's name, or a draft model, which is a path."""
    text = str(value)
    is_file = "/" in text or is_gguf(text)
    if text == drafting.AUTO or (not is_file and drafting.known(text)):
        return text
    if is_file or _model_here(text) or ollama_name(text):
        return draft_model(text)
    raise _no_drafter(text, ", or a model")


def drafter(value: str) -> str:
    """Parse a drafter's name."""
    if drafting.is_spec(value):
        return spec(value)
    if value == drafting.AUTO or drafting.known(value):
        return value
    raise _no_drafter(value)


def spec(value: str) -> str:
    """Parse stages of drafting, such as lookup:n=8,head:k=4."""
    try:
        return drafting.of_spec(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from None


def _no_drafter(text: str, more: str = "") -> click.BadParameter:
    near = difflib.get_close_matches(text, drafters(), 1)
    known = f"expected {', '.join(drafters())}{more}"
    return click.BadParameter(
        drafting.no_drafter(text, f"did you mean {near[0]}?" if near else known)
    )


def draft_model(value: str | Path) -> Path:
    """Parse a draft model: what may be MODEL, as a path. It is found when it is opened."""
    text = str(value)
    if _model_here(text) or is_hub_name(text):
        return Path(text)
    from edgedec.library import Library
    from edgedec.library.locate import unknown

    raise click.BadParameter(unknown(text, Library()))


def _model_here(text: str) -> bool:
    """Return whether a word names a file or folder here, or a model of the library."""
    here = text == DEMO or Path(text).exists() or ready_onnx(text) is not None
    return here or in_library(text)


def in_library(word: str) -> bool:
    """Return whether a word, which names no file here, names a model of the library."""
    if word == DEMO or exists(word) or not user_folders.library().is_dir():
        return False
    from edgedec.library import Library

    return bool(Library().matching(word))


class Whole(click.IntRange):
    """A whole number of an option whose letter means something else to another program.

    Args:
        other: a regular expression of what is meant for the other option.
        option: that other option, and what it is.

    """

    def __init__(
        self,
        least: int | None = None,
        most: int | None = None,
        *,
        other: str,
        option: tuple[str, str],
    ) -> None:
        super().__init__(least, most)
        self._other, self._option = other, option

    def _describe_range(self) -> str:
        return "" if self.min is self.max is None else super()._describe_range()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; BadParameter names the other option where that was meant."""
        if re.fullmatch(self._other, str(value)):
            name, what = self._option
            instead = getattr(ctx.command, "instead", {}) if ctx is not None else {}
            meant = f"{what}: {instead[name]}" if name in instead else f"{what} is {name}"
            raise click.BadParameter(f"{value!r}: expected a whole number; {meant}")
        return int(super().convert(value, param, ctx))


THREADS = Whole(1, 1024, other=r"\d*\.\d+", option=("--temperature", "the temperature"))
SEED = Whole(other=r".*[A-Za-z].*", option=("--system", "a system message"))


class Listed(click.Choice):  # type: ignore[type-arg]
    """A choice of names returned by a function, which is called when they are first needed."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self.case_sensitive = True
        self._names = names

    @property
    def choices(self) -> list[str]:  # type: ignore[override]
        return self._names()


def formats(*others: str) -> Listed:
    """Return the type of a model format: the ``others``, and those that runtimes support."""

    def names() -> list[str]:
        return [*others, *registry.formats()]

    return Listed(names)


# The types of values by the kinds that declared options name.
KINDS: dict[str, Any] = {
    "bias": bias, "context": click.IntRange(min=2), "draft": draft, "draft_context": draft_context,
    "draft_length": draft_length, "drafter": drafter, "file": FILE,
    "folder": click.Path(path_type=Path), "format": formats("auto"), "memory": memory,
    "new_file": click.Path(dir_okay=False, path_type=Path), "schema": schema, "seed": SEED,
    "size": size, "spec": spec, "stop": stop_text, "text": text, "threads": THREADS,
}  # fmt: skip
