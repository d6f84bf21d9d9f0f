"""Finds the model that a name means; converts or fetches one that is not there yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgedec._support.model_path import DEMO, gguf_files, is_gguf, nearest, not_a_bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import BundleError, InputError
from edgedec.library import making
from edgedec.library.making import Listener
from edgedec.library.records import GGUF, Form, Model
from edgedec.library.reference import Reference, parse
from edgedec.library.store import Library


@dataclass(frozen=True, slots=True)
class Located:
    """A model that can be opened.

    Attributes:
        path: ``demo``, a bundle's folder or a GGUF file, as ``Pipeline.open`` takes it.
        model: its entry in the library; None for what is used where it is.

    """

    path: str | Path
    model: Model | None = None


def locate(
    word: str,
    form: Form | None,
    library: Library,
    listener: Listener,
    *,
    refresh: bool = False,
) -> Located:
    """Return the model that a word means; a checkpoint is made into a bundle first.

    Args:
        word: ``demo``, a bundle's folder, a checkpoint's, a GGUF file or a folder with one, or
            the name or id of a model in the library, or a name on a hub.
        form: of the bundle that a checkpoint is made into; None takes what is there.
        library: where models are kept and found.
        listener: receives progress.
        refresh: ask the hub also for what is in the library.

    Raises:
        InputError, BundleError: there is no such model.
        ExportError, RuntimeUnavailable: it cannot be made into a bundle.

    """
    if word == DEMO:
        return Located(DEMO)
    path = Path(word)
    if word and _exists(path):
        return _on_disk(path, form, library, listener)
    reference = parse(word)
    if reference is None or not refresh:
        if found := library.find(word, form):
            return Located(found.path, found)
        if found := library.find(word):
            return _again(found, form, library, listener)
    if reference is not None:
        return _fetched(reference, form, library, listener)
    raise InputError(unknown(word, library))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than a path may be, or with a null byte
        return False


def _on_disk(path: Path, form: Form | None, library: Library, listener: Listener) -> Located:
    if not path.is_dir() or (path / MANIFEST).exists():
        return Located(path)
    if (path / "config.json").is_file() and not _only_gguf(path):
        made = making.of_checkpoint(library, path, form, listener)
        return Located(made.path, made)
    files = gguf_files(path)
    if len(files) != 1:
        raise BundleError(not_a_bundle(path))
    return Located(files[0])


def _only_gguf(folder: Path) -> bool:
    """Return whether a folder's weights are in GGUF files alone."""
    return bool(gguf_files(folder)) and not any(folder.glob("*.safetensors"))


def _again(found: Model, form: Form | None, library: Library, listener: Listener) -> Located:
    """Make another form of a model whose source is still there."""
    where = found.record.origin.where
    if found.record.kind == GGUF:
        raise InputError(f"{found.name} is a GGUF file: --weights and --calibrated are for others")
    if found.record.origin.revision is not None and (reference := parse(where)):
        return _fetched(reference, form, library, listener)
    source = Path(where)
    if not source.is_dir():
        raise InputError(
            f"{found.name} is in the library as {found.record.form}, and its source {where} is"
            f" not there to make it {form} from"
        )
    made = making.of_checkpoint(library, source, form, listener)
    return Located(made.path, made)


def _fetched(
    reference: Reference, form: Form | None, library: Library, listener: Listener
) -> Located:
    from edgedec.library import hub

    made = making.of_fetched(library, hub.fetch(reference, library, listener), form, listener)
    return Located(made.path, made)


def unknown(word: str, library: Library) -> str:
    """Return the error line for a word that names no model."""
    near = nearest(Path(word), [model.name for model in library.models()])
    meant = f": did you mean {near}?" if near else ""
    if is_gguf(word):
        return f"{word}: no such file{meant}"
    return (
        f"{word} is not a file or folder here, nor a model of the library"
        f"{meant or ' (`edgedec list` shows them), nor a name on a hub such as Qwen/Qwen3-0.6B'}"
    )
