"""Finds the model that a word means, for all commands and ``Pipeline.open``.

A checkpoint is converted, and a model on a hub is fetched, if it is not in the library yet.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgedec._support.fields import printable
from edgedec._support.model_path import exists, hub_name, is_gguf, nearest, ollama_name, ready
from edgedec._support.ready_path import ready_onnx
from edgedec.errors import InputError
from edgedec.library.records import GGUF, Form, Model
from edgedec.library.reference import Reference, parse
from edgedec.library.store import Library

if TYPE_CHECKING:
    from edgedec.export import Progress
    from edgedec.library.choosing import Fetched
    from edgedec.library.making import Listener

ONNX = "onnx"
_log = logging.getLogger("edgedec")


@dataclass(frozen=True, slots=True)
class Located:
    """A model that can be opened.

    Attributes:
        path: ``demo``, a bundle's folder or a GGUF file.
        model: its entry in the library; None for what is used where it is.

    """

    path: str | Path
    model: Model | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What is wanted of a model that a word means.

    Attributes:
        form: of the bundle that a checkpoint is made into; None takes what is there.
        name: that the model has in the library; None is its usual one.
        refresh: ask the hub also for what is in the library.
        download: fetch from the hub what is not in the library.
        format: of the files that are opened; ``onnx`` makes a bundle of a GGUF file, too.
        head: name on the hub of the head that a bundle is made with; None takes any bundle.

    """

    form: Form | None = None
    name: str | None = None
    refresh: bool = False
    download: bool = True
    format: str | None = None
    head: str | None = None


ANY = Query()


def locate(word: str, library: Library, listener: Listener, query: Query = ANY) -> Located:
    """Return the model that a word means; a checkpoint is made into a bundle first.

    Args:
        word: ``demo``, a bundle's folder, a checkpoint's, a GGUF file or a folder with one, or
            the name or id of a model in the library, or a name on a hub or its address there.
        library: where models are kept and found.
        listener: receives progress.
        query: what is wanted of it.

    Raises:
        InputError, BundleError: there is no such model, or several have this name.
        ExportError, RuntimeUnavailable: it cannot be made into a bundle.

    """
    if query.format == ONNX:
        plain = replace(query, form=None, name=None)
        found = _find(hub_name(word), library, listener, plain)
        if is_gguf(found.path):
            return _converted(Path(found.path), library=library, listener=listener, query=query)
    found = _find(hub_name(word), library, listener, query)
    if query.form is not None and is_gguf(found.path):
        raise InputError(
            f"{word} is a GGUF file, whose weights are used as they are: --format {ONNX} makes a"
            " bundle of it with these, or leave --weights and --calibrated out"
        )
    if query.name is not None and found.model is None:
        raise InputError(
            f"{word} is used where it is, and is not in the library: leave --name {query.name} out"
        )
    return found


def _find(word: str, library: Library, listener: Listener, query: Query) -> Located:
    if (there := ready(word)) is not None:
        return Located(there)
    if (ready_there := ready_onnx(word)) is not None:
        return _converted(*ready_there, library=library, listener=listener, query=query)
    if word and exists(word):
        return _converted(Path(word), library=library, listener=listener, query=query)
    reference = parse(word)
    if reference is not None and reference.which is None and is_gguf(word):
        reference = None  # a file that is missing
    if reference is None or not query.refresh:
        found = library.find(word, query.form)
        if found is not None and (query.head is None or found.record.head is not None):
            return _called(found, library, listener, query)
        if found := library.find(word):
            return _again(found, library, listener, query)
    if reference is not None:
        return _fetched(reference, library, listener, query)
    raise InputError(unknown(word, library))


def path_of(
    word: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    download: bool = False,
    format: str | None = None,
) -> str | Path:
    """Return the path of the model that a word means, as Python's functions take it.

    Args:
        word: see ``locate``.
        progress: called while a checkpoint is converted, or a model downloaded.
        download: fetch from the hub what is not in the library.
        format: see ``Query``.

    Raises:
        InputError, BundleError, ExportError, RuntimeUnavailable: as ``locate`` raises them.

    """
    from edgedec.library.making import Listener

    listener = Listener(_log.info, progress, progress)
    return locate(
        os.fspath(word), Library(), listener, Query(download=download, format=format)
    ).path


def _converted(
    folder: Path, which: str | None = None, *, library: Library, listener: Listener, query: Query
) -> Located:
    from edgedec.library import making

    head = _head(library, listener, query)
    if which is not None or ready_onnx(folder) is not None:
        ready = making.find_ready(folder, which, query.form, head)
        made = making.of_ready(library, ready, listener, name=query.name)
        return Located(made.path, made)
    made = making.of_checkpoint(library, folder, query.form, listener, name=query.name, head=head)
    return Located(made.path, made)


def _called(found: Model, library: Library, listener: Listener, query: Query) -> Located:
    """Return a model of the library; the same under another name, if one is wanted."""
    if query.name in (None, found.name):
        return Located(found.path, found)
    from edgedec.library import making

    named = making.of_model(library, found, str(query.name), listener)
    return Located(named.path, named)


def _again(found: Model, library: Library, listener: Listener, query: Query) -> Located:
    """Make another form of a model whose source is still there."""
    where = found.record.origin.where
    query = replace(query, name=query.name or found.name, form=query.form or found.record.form)
    if found.record.kind == GGUF:
        raise InputError(f"{found.name} is a GGUF file: --weights and --calibrated are for others")
    if found.record.origin.revision is not None and (reference := parse(where)):
        return _fetched(reference, library, listener, query)
    source = Path(where)
    if not source.exists():
        raise InputError(
            f"{found.name} is in the library as {found.record.form}, and its source {where} is"
            f" not there to make it {query.form} from"
        )
    return _converted(source, library=library, listener=listener, query=query)


def _fetched(reference: Reference, library: Library, listener: Listener, query: Query) -> Located:
    if not query.download:
        raise InputError(
            f"{reference.where} is not in the library: edgedec.pull({reference.where!r}) or"
            f" `edgedec pull {reference.where}` downloads it"
        )
    from edgedec.library import hub, making

    head = _head(library, listener, query)  # first: without it the target need not be made twice
    fetched = hub.fetch(reference, library, listener)
    made = making.of_fetched(library, fetched, query.form, listener, query.name, head)
    return Located(made.path, made)


def _head(library: Library, listener: Listener, query: Query) -> Fetched | None:
    reference = None if query.head is None else parse(query.head)
    if reference is None:
        return None
    from edgedec.library import hub

    return hub.fetch(reference, library, listener, head=True)


def unknown(word: str, library: Library) -> str:
    """Return the error line for a word that names no model."""
    near = nearest(Path(word), [model.name for model in library.models()])
    word, meant = printable(word), f": did you mean {near}?" if near else ""
    if is_gguf(word):
        return f"{word}: no such file{meant}"
    if word.startswith(("./", "../", "/", "~")):
        return f"{word} is not a file or folder here{meant}"
    if not meant and (elsewhere := ollama_name(word)):
        return elsewhere
    return (
        f"{word} is not a file or folder here, nor a model of the library"
        f"{meant or ' (`edgedec list` shows them), nor a name on a hub such as Qwen/Qwen3-0.6B'}"
    )
