"""Recognises what a user may give as a model, and advises on anything else."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from edgedec._support.fields import one_line
from edgedec._support.ready_path import ready_onnx
from edgedec.errors import BundleError

DEMO = "demo"
GGUF = ".gguf"
# What a user may give as a model, and a warning about a draft.
KINDS = (
    "a bundle, a Hugging Face folder, a .gguf file, a model of the library or of a hub (org/name),"
    f" or {DEMO}"
)
OWN_DRAFT = (
    "the draft is the target itself, so a drafted token costs as much as one of the text: give a"
    " smaller model of the same family, or leave --draft out"
)
_HOLDS = _MANIFEST, _CHECKPOINT = "manifest.json", "config.json"
_ADAPTER = "adapter_config.json"
# Files that people give in place of the folder that holds them.
_FILES = (*_HOLDS, _ADAPTER, "tokenizer.json", "model.safetensors.index.json")
_WEIGHTS = (".safetensors", ".onnx", ".data", ".bin", ".pt", ".pth")
# Folders of a bundle inside each other; bytes of a manifest in which its version is looked for.
_DEEPEST, _MOST_READ = 3, 1 << 20
# A model's name on a hub, as Qwen/Qwen3-0.6B.
_HUB_NAME = re.compile(r"([A-Za-z][\w.-]*)/([A-Za-z][\w.-]*)")
# The address of a model's page, of its files or of one; a path has lost a slash of https://.
_HUB_ADDRESS = re.compile(
    r"(?:https?:/{1,2})?(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<name>[\w.-]+/[^/?#]+)"
    r"(?:/(?:tree|blob|resolve)/(?P<revision>[^/?#]+)"
    r"(?:/(?:[^?#]*/)?(?P<file>[^/?#]+\.gguf)|/[^?#]*)?)?/?(?:[?#].*)?"
)
_DEFAULT_BRANCH = "main"
# A model's name in Ollama's library, as llama3.2:1b.
_OLLAMA_NAME = re.compile(r"[A-Za-z][\w.-]*:[\w.-]+")
_MOST_FILES = 10_000
_NAMED = 3


def is_gguf(path: str | Path) -> bool:
    """True if a path names a GGUF file rather than a folder."""
    return Path(path).suffix.lower() == GGUF


def gguf_of(path: Path) -> Path | None:
    """Return the GGUF file that a path means: itself, or the one in a folder of nothing else."""
    if is_gguf(path):
        return path
    if not path.is_dir() or any((path / name).exists() for name in _HOLDS):
        return None
    files = gguf_files(path)
    return files[0] if len(files) == 1 else None


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
        if ready_onnx(word) is not None:
            return True
        if not word or not path.is_dir():
            return False
        return any((path / name).exists() for name in _HOLDS) or bool(gguf_files(path))
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return False


def exists(word: str | os.PathLike[str]) -> bool:
    """Return whether a word is the path of something here."""
    try:
        return str(word) != "" and Path(word).exists()
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return False


def ready(word: str | os.PathLike[str]) -> str | Path | None:
    """Return what a word means if it can be opened where it is, as it is; None if not.

    That is ``demo``, a bundle's folder, a GGUF file or a folder with one.

    Raises:
        BundleError: a folder with several GGUF files, or a part of a model.

    """
    if word == DEMO:
        return DEMO
    path = Path(word)
    if not word or not exists(path) or ready_onnx(path) is not None:
        return None
    if path.is_dir() and not (path / _MANIFEST).exists():
        if (path / _CHECKPOINT).is_file() and not _only_gguf(path):
            return None
        files = gguf_files(path)
        if len(files) != 1:
            raise BundleError(not_a_bundle(path))
        return files[0]
    if not path.is_dir() and not is_gguf(path):
        raise BundleError(part_of_model(path) or not_a_bundle(path))
    return path


def _only_gguf(folder: Path) -> bool:
    """Return whether a folder's weights are in GGUF files alone."""
    return bool(gguf_files(folder)) and not any(folder.glob("*.safetensors"))


def hub_name(word: str) -> str:
    """Return a hub's model as ``org/name`` for its address; any other word as it is.

    ``hf.co/org/name:Q4_K_M`` is ``org/name:Q4_K_M``, and
    ``https://huggingface.co/org/name/tree/v1`` is ``org/name@v1``. A path that exists stays.
    """
    found = _HUB_ADDRESS.fullmatch(word)
    if found is None or exists(word):
        return word
    revision, file = found["revision"], found["file"]
    at = "" if revision in (None, _DEFAULT_BRANCH) else f"@{revision}"
    return f"{found['name']}{at}{'' if file is None else f':{file}'}"


def is_hub_name(word: str) -> bool:
    """Return whether a word looks like a hub's model name or address and is not a local file."""
    found = _HUB_NAME.fullmatch(hub_name(word))
    return found is not None and not is_gguf(word) and not exists(word)


def ollama_name(word: str) -> str | None:
    """Return what to write for a word that has the form of a name in Ollama's library, or None."""
    if _OLLAMA_NAME.fullmatch(word) is None or exists(word):
        return None
    return (
        f"{word} looks like a name of Ollama's library: give the model's name on huggingface.co,"
        " as org/name, or org/name:Q4_K_M for one of its GGUF files"
    )


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
    name = hub_name(name)
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
    if part := part_of_model(root):
        return part
    if not root.is_dir():
        kind = "a file" if root.exists() else "not a folder"
        near = nearest(root)
        meant = f" (did you mean {near}?)" if near else ""
        return f"{root} is {kind}{meant}: give {KINDS}"
    if (root / _CHECKPOINT).is_file():
        return (
            f"{root} is a checkpoint, not a bundle: make one with `edgedec export {root} --out DIR`"
        )
    files = [str(path) for path in gguf_files(root)]
    if files:
        more = f" or {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        return f"{root} is a folder with GGUF files: give a file, {', '.join(files[:_NAMED])}{more}"
    return (
        f"{root} has no {_MANIFEST}, as a bundle has, and no {_CHECKPOINT}, as a Hugging Face"
        " folder has: give a folder with a model"
    )


def part_of_model(path: Path) -> str | None:
    """Return what to give instead of a part of a model, or of a folder without one; else None."""
    try:
        if path.is_file():
            return _file_of_model(path)
        if not path.is_dir() or any((path / name).exists() for name in _HOLDS):
            return None
        if (root := _bundle_around(path)) is not None:
            return f"{path} is a part of the bundle {root}: give {root}"
        if not any(path.iterdir()):
            return (
                f"{path} is an empty folder: give a bundle, a Hugging Face folder or a {GGUF} file"
            )
    except (OSError, ValueError):  # unreadable, longer than a path may be, or with a null byte
        return None
    if (path / _ADAPTER).is_file():
        return (
            f"{path} is a LoRA adapter, which only changes a model: merge it into its base model"
            " (merge_and_unload() and save_pretrained() of the package peft), and give that folder"
        )
    return None


def _file_of_model(path: Path) -> str | None:
    if path.name not in _FILES and path.suffix not in _WEIGHTS:
        return None
    folder = _bundle_around(path)
    kind = "checkpoint" if folder is None else "bundle"
    whole = path.parent if folder is None else folder
    return f"{path} is a file of a {kind}: give the folder, {whole}"


def _bundle_around(path: Path) -> Path | None:
    """Return the bundle of which a path is a part, as the user would write it."""
    place = Path(os.path.abspath(path))  # noqa: PTH100 - a link keeps its own place
    for root in [*place.parents][:_DEEPEST]:
        manifest = root / _MANIFEST
        if not manifest.is_file():
            continue
        with manifest.open("rb") as file:  # other programs have files of this name, too
            if b'"schema_version"' in file.read(_MOST_READ):
                return root if path.is_absolute() else Path(os.path.relpath(root))
    return None


def nearest(path: Path, more: Iterable[str] = ()) -> str | None:
    """Return what a misspelt path may mean: a model next to it, the shipped pair, or one more."""
    names = [DEMO, *more] if str(path) == path.name else []
    try:
        beside = islice(path.parent.iterdir(), _MOST_FILES)
        names += [one.name for one in beside if names_model(str(one))]
    except (OSError, ValueError):
        pass
    close = difflib.get_close_matches(path.name, names, 1)
    if not close:
        return None
    sibling = path.with_name(*close)
    return one_line(str(sibling if sibling.exists() else close[0]))
