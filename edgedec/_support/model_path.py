"""Recognises what a user may give as a model, and advises on anything else."""

from __future__ import annotations

import difflib
import os
import re
from itertools import islice
from pathlib import Path

from edgedec._support.fields import one_line

DEMO = "demo"
GGUF = ".gguf"
_HOLDS = _MANIFEST, _CHECKPOINT = "manifest.json", "config.json"
# A model's name on a hub, as Qwen/Qwen3-0.6B.
_HUB_NAME = re.compile(r"([A-Za-z][\w.-]*)/([A-Za-z][\w.-]*)")
_MOST_FILES = 10_000
_NAMED = 3


def is_gguf(path: str | Path) -> bool:
    """True if a path names a GGUF file rather than a folder."""
    return Path(path).suffix.lower() == GGUF


def names_model(word: str) -> bool:
    """Return whether a word means a model rather than a text.

    It does when it is ``demo``, a path that ends with ``.gguf``, or an existing folder that holds
    a bundle, a checkpoint or GGUF files. For the last two, opening it says what to give instead.
    """
    if word == DEMO:
        return True
    path = Path(word)
    try:
        if is_gguf(word):  # one that is missing is a mistake; a sentence is not a model
            return path.exists() or not any(character.isspace() for character in word)
        if not word or not path.is_dir():
            return False
        return any((path / name).exists() for name in _HOLDS) or bool(gguf_files(path))
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return False


def is_hub_name(word: str) -> bool:
    """Return whether a word looks like a hub's model name and is not a local file."""
    found = _HUB_NAME.fullmatch(word)
    return found is not None and not is_gguf(word) and not Path(word).exists()


def gguf_files(folder: Path) -> list[Path]:
    """The GGUF files in a folder; the first part of one that is split."""
    found = []
    for seen, path in enumerate(folder.iterdir()):
        if seen == _MOST_FILES:
            break
        if is_gguf(path) and not re.search(r"-(?!00001)\d{5}-of-\d{5}\.", path.name):
            found.append(path)
    return sorted(found)


def utf8(path: str | Path) -> str:
    """A path for a library that encodes every text as UTF-8, whatever the locale is.

    Under another locale Python reads the bytes of a path as other characters, or escapes them;
    the bytes are what the disk knows.

    Raises:
        UnicodeDecodeError: the bytes are not UTF-8.

    """
    return os.fsencode(path).decode("utf-8")


def how_to_fetch(name: str, then: str) -> str:
    """Return advice for a hub's model name.

    Args:
        name: as ``Qwen/Qwen3-0.6B``.
        then: what to do with the folder, where ``{}`` stands for it.

    """
    folder = f"./{name.split('/')[-1]}"
    return (
        f"{name} is not a folder here: `edgedec run {name}` fetches and runs it; or get its files"
        f" with `hf download {name} --local-dir {folder}`, then {then.format(folder)}"
    )


def not_a_bundle(root: Path) -> str:
    """Return why a path without a manifest cannot be opened as a bundle."""
    name = str(root)
    if is_hub_name(name):
        return how_to_fetch(name, "`edgedec export {} --out DIR`, or give a GGUF file in it")
    if not root.is_dir():
        kind = "a file" if root.exists() else "not a folder"
        return (
            f"{root} is {kind}{_meant(root)}: give a bundle that `edgedec export` wrote, a {GGUF}"
            f" file, or {DEMO}"
        )
    if (root / _CHECKPOINT).is_file():
        return (
            f"{root} is a checkpoint, not a bundle: make one with `edgedec export {root} --out DIR`"
        )
    files = [str(path) for path in gguf_files(root)]
    if files:
        more = f" or {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        return f"{root} is a folder with GGUF files: give a file, {', '.join(files[:_NAMED])}{more}"
    return f"{root} has no {_MANIFEST}: give a bundle that `edgedec export` wrote, all of it"


def _meant(path: Path) -> str:
    """Return a suggestion for a misspelt path: a model next to it, or the shipped pair."""
    names = [DEMO] if str(path) == path.name else []
    try:
        beside = islice(path.parent.iterdir(), _MOST_FILES)
        names += [one.name for one in beside if names_model(str(one))]
    except (OSError, ValueError):
        pass
    close = difflib.get_close_matches(path.name, names, 1)
    if not close:
        return ""
    meant = (
        DEMO if close[0] == DEMO and not path.with_name(DEMO).exists() else path.with_name(*close)
    )
    return f" (did you mean {one_line(str(meant))}?)"
