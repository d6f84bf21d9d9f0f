"""Converts a checkpoint's folder to a model of the library."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgedec._support.fields import one_line
from edgedec._support.files import linked
from edgedec._support.model_path import DEMO, is_gguf
from edgedec._support.opened_before import OpenedBefore
from edgedec._version import __version__
from edgedec.bundle import Bundle
from edgedec.errors import CheckpointError, InputError, ParityError
from edgedec.export import ExportOptions, ModelReport, Progress, export_bundle, source_files
from edgedec.export import ready as ready_export
from edgedec.export.options import MAX_KL, rounding
from edgedec.export.ready import Ready
from edgedec.gguf import GgufHeader
from edgedec.library import drafts, records
from edgedec.library.choosing import Fetched
from edgedec.library.records import Form, Model, Origin, Record
from edgedec.library.store import Library

_VETTED = "checkpoints"
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}")
# Forms to try if none is requested: each one if the form before fails parity.
_MADE = (Form(), Form("int8"), Form("fp32"))
_PREFERRED = (
    *(Form(weights, records.CALIBRATED) for weights in records.ROUNDED),
    _MADE[0],
    Form("int4"),
    *_MADE[1:],
)


@dataclass(frozen=True, slots=True)
class Listener:
    """Receives progress while a model is made.

    Attributes:
        report: takes a sentence.
        progress: takes the stages of an export; may be None.
        fetching: takes the bytes of a download, file by file; may be None.

    """

    report: Callable[[str], None]
    progress: Progress | None = None
    fetching: Progress | None = None


def of_checkpoint(
    library: Library,
    folder: Path,
    form: Form | None,
    listener: Listener,
    origin: Origin | None = None,
    name: str | None = None,
    head: Fetched | None = None,
) -> Model:
    """Return the model that a checkpoint's folder makes in a form; it is made once.

    The same files under another name are another model, which shares what was made.

    Args:
        library: where it is kept.
        folder: a Hugging Face folder, or a GGUF file.
        form: how weights are stored; None takes a form that was made before, the calibrated one
            first, else ``auto``, or a finer one for a model that fails parity even so.
        listener: receives progress.
        origin: where the folder came from, if it was fetched.
        name: of the model; None is the hub's, or the folder's.
        head: what drafts from its states; None takes a model that was made with one, too.

    Raises:
        ExportError, RuntimeUnavailable: as ``export_bundle`` raises them.
        CheckpointError: so does it, or the head drafts nothing useful.
        InputError: so does it, or another model has the name that was given.

    """
    origin = origin or _origin(folder, source_files(folder))
    called = _usual_name(origin) if name is None else name
    new = _New(library, folder, origin, called, listener, head)
    if new.name != _usual_name(origin):
        _check_free(library, new.name, origin)
    forms = _PREFERRED if form is None else (form,)
    for one in forms:
        if found := _made_before(new, one):
            return found
    for one in forms:
        if twin := _twin(new, one):
            return _renamed(new, twin)
    if form is not None:
        return _made(new, form)
    for one in _MADE[:-1]:
        try:
            return _made(new, one)
        except ParityError as error:
            listener.report(str(error))
    return _made(new, _MADE[-1])


def of_ready(
    library: Library,
    ready: Ready,
    listener: Listener,
    origin: Origin | None = None,
    name: str | None = None,
) -> Model:
    """Return the model of a decoder in ONNX, whose bundle has its files as they are; made once.

    Args:
        library, listener, origin, name: as those of ``of_checkpoint``.

    Raises:
        BundleError, CheckpointError: it computes something else, or is damaged.
        InputError: another model has the name that was given.

    """
    origin = origin or _origin(ready.folder, ready.files)
    usual = _usual_name(origin)
    if ready.chosen or origin.revision:
        usual = f"{usual}:{ready.label}"
    if name not in (None, usual):
        _check_free(library, name, origin)
    new = _New(library, ready.folder, origin, name or usual, listener, ready=ready)
    form = Form(ready.label)
    if found := _made_before(new, form):
        return found
    twin = _twin(new, form)
    return _made(new, form) if twin is None else _renamed(new, twin)


def of_fetched(
    library: Library,
    fetched: Fetched,
    form: Form | None,
    listener: Listener,
    name: str | None = None,
    head: Fetched | None = None,
) -> Model:
    """Return the model of files that were fetched; see ``of_checkpoint``."""
    choice, origin = fetched.choice, fetched.origin
    if choice.kind == records.GGUF:
        if head is not None:
            raise CheckpointError(f"{origin.where} is a GGUF file: a head needs the checkpoint")
        if name is None:
            name = f"{origin.where}:{choice.label}"
        else:
            _check_free(library, name, origin)
        return of_gguf(library, fetched.folder / choice.names[0], name, origin)
    if choice.graph:
        found = find_ready(fetched.folder, choice.label, form, head)
        return of_ready(library, found, listener, origin, name)
    return of_checkpoint(library, fetched.folder, form, listener, origin, name, head)


def find_ready(folder: Path, which: str | None, form: Form | None, head: Fetched | None) -> Ready:
    """Return the decoder in ONNX of a folder that has one.

    Raises:
        CheckpointError: there is none of this name, or the folder is damaged.
        InputError: a form or a head is wanted of it.

    """
    if form is not None or head is not None:
        raise InputError(
            f"{folder} holds a decoder in ONNX, which is used as it is: leave --weights,"
            " --calibrated and heads out, or give its original checkpoint"
        )
    found = ready_export.find(folder, which)
    if found is None:
        raise InputError(f"{folder} has no decoder in ONNX")
    return found


def of_model(library: Library, model: Model, name: str, listener: Listener) -> Model:
    """Return a model of the library under another name; both share their files."""
    origin = model.record.origin
    _check_free(library, name, origin)
    if model.record.kind == records.GGUF:
        return of_gguf(library, model.path, name, origin)
    new = _New(library, model.path, origin, name, listener)
    id = _id(origin, model.record.form, name, model.record.head)
    return library.get(id) or _renamed(new, model)


@dataclass(frozen=True, slots=True)
class _New:
    """A model to make: its source, its name, who listens, and the head that goes into it.

    ``ready`` is the decoder in ONNX that it is, or None.
    """

    library: Library
    folder: Path
    origin: Origin
    name: str
    listener: Listener
    head: Fetched | None = None
    ready: Ready | None = None

    def id(self, form: Form) -> str:
        return _id(self.origin, form, self.name, self.head_origin)

    @property
    def head_origin(self) -> Origin | None:
        """Where the head came from, if there is one."""
        return None if self.head is None else self.head.origin


def _usual_name(origin: Origin) -> str:
    if origin.revision:
        return origin.where
    source = Path(origin.where)
    return source.stem if is_gguf(source) else source.name


def _check_free(library: Library, name: str, origin: Origin) -> None:
    """Refuse a name that cannot be one, or that another model has."""
    if name == DEMO or is_gguf(name) or not _NAME.fullmatch(name):
        raise InputError(f"--name {one_line(name)}: expected letters, digits, dots and dashes")
    for other in library.matching(name):
        before = other.record.origin
        same = before.files == origin.files or before.where == origin.where
        if other.name == name and not same:
            raise InputError(
                f"{name} is the name of another model, from {one_line(before.where)}: give another"
                f" --name, or remove that one with `edgedec rm {other.id[:8]}`"
            )


def _made_before(new: _New, form: Form) -> Model | None:
    """Return the model that was made of the same files under this name, if there is one."""
    return new.library.get(new.id(form)) or _like(new, form, new.name)


def _twin(new: _New, form: Form) -> Model | None:
    """Return the model that was made of the same files under another name, if there is one."""
    return _like(new, form)


def _like(new: _New, form: Form, name: str | None = None) -> Model | None:
    """Return a model of the same files, with the same head or, if none is wanted, with any."""
    for one in new.library.models():
        head = one.record.head
        same = new.head is None or (head is not None and head.files == new.head.origin.files)
        named = name in (None, one.name)
        if same and named and one.id == _id(new.origin, form, one.name, head):
            return one
    return None


def _renamed(new: _New, twin: Model) -> Model:
    """Return a model of this name with the files of another, which hard links share."""
    head, form = twin.record.head, twin.record.form
    id = _id(new.origin, form, new.name, head)
    with _locked(new, id), new.library.adding(id) as staging:
        if found := new.library.get(id):
            return found
        shutil.copytree(twin.path, staging / records.BUNDLE, copy_function=linked)
        new.listener.report(f"{new.name} has the same files as {twin.name}, which it shares")
        return new.library.publish(staging, id, _record(staging, id, form, new, head))


def _locked(new: _New, id: str) -> AbstractContextManager[None]:
    return new.library.locked(
        id, lambda: new.listener.report("another edgedec makes this model: waiting")
    )


def _made(new: _New, form: Form) -> Model:
    library, listener, start = new.library, new.listener, time.perf_counter()
    id = new.id(form)
    with _locked(new, id):
        if found := library.get(id):
            return found
        with library.adding(id) as staging:
            if new.ready is None:
                _exported(new, form, staging / records.BUNDLE)
            else:
                _taken(new, new.ready, staging / records.BUNDLE)
            where = library.folder / "models" / id
            listener.report(f"made in {time.perf_counter() - start:.1f} s: {where}")
            return library.publish(staging, id, _record(staging, id, form, new, new.head_origin))


def _exported(new: _New, form: Form, out: Path) -> None:
    """Convert a checkpoint."""
    listener, origin, head = new.listener, new.origin, new.head
    listener.report(_what(origin.where if origin.revision else str(new.folder), form))
    report = export_bundle(
        ExportOptions(
            target=new.folder,
            out=out,
            weights=form.weights,
            calibration=form.calibration,
            max_kl=MAX_KL if form.max_kl is None else form.max_kl,
            licence=origin.licence,
            head=head.folder if head else None,
        ),
        listener.progress,
    )
    if head is not None:
        _check_head(head.origin, report.models[-1])
    notes = report.models[0].notes
    if not is_gguf(new.folder):
        notes = notes[:1] if form.weights == records.AUTO else ()
    for note in notes:
        listener.report(note)


def _taken(new: _New, model: Ready, out: Path) -> None:
    """Take a decoder in ONNX as it is."""
    new.listener.report(f"trying {model.described}, which needs no conversion")
    found = ready_export.write(model, out, new.name, new.origin.licence)
    new.listener.report(f"{found}; {model.better}")


def _check_head(origin: Origin, report: ModelReport) -> None:
    """Refuse a head that drafts nothing useful for this target; say how often it is right."""
    from edgedec.export.agreement import POOR

    share = report.parity["agreement_1"]
    if share < POOR:
        raise CheckpointError(
            f"{origin.where}: the head's first choice is the target's in {share:.0%} of the places,"
            f" expected {POOR:.0%} or more: it was not made for this target"
        )


def _what(source: str, form: Form) -> str:
    """Describe the form that is made, and the other one."""
    about = f"making {source} into a bundle ({form})"
    return f"{about}: {rounding(form.calibration)}" if form.rounds else about


def _origin(folder: Path, files: Sequence[Path]) -> Origin:
    """Describe a model's folder; files that were hashed before are not read again."""
    known = OpenedBefore(_VETTED, __version__)
    try:
        digests = {_named(file, folder): known.digest([file]) for file in files}
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or folder} cannot be read: {error.strerror}"
        ) from None
    known.save()
    where = os.path.abspath(folder)  # noqa: PTH100 - a link keeps its own name
    return Origin(where, None, digests, size)


def _named(file: Path, folder: Path) -> str:
    """Return a file's name in its model's folder, as a hub has it."""
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name


def of_gguf(library: Library, file: Path, name: str, origin: Origin) -> Model:
    """Return the model of a GGUF file that was fetched into the library; it stays where it is."""
    header, facts = GgufHeader.read(file), drafts.of_gguf(file)
    form = Form(header.quantisation)
    id = _id(origin, form, name)
    record = Record(
        name=name,
        kind=records.GGUF,
        path=file.relative_to(library.folder).as_posix(),
        form=form,
        architecture=header.architecture or "unstated",
        parameters=facts.parameters,
        tokenizer=facts.tokenizer,
        licence=origin.licence or header.text("general.license"),
        made=_now(),
        origin=origin,
    )
    with library.locked(id, lambda: None), library.adding(id) as staging:
        return library.publish(staging, id, record)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _id(origin: Origin, form: Form, name: str, head: Origin | None = None) -> str:
    """Return the id of a model: the same for the same bytes, form, name and edgedec's version."""
    raw: list[Any] = [origin.files, form.weights, form.calibration, name, __version__]
    if form.max_kl is not None:
        raw.append(form.max_kl)
    if head is not None:
        raw.append(head.files)
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:16]


def _record(staging: Path, id: str, form: Form, new: _New, head: Origin | None) -> Record:
    target = Bundle.open(staging / records.BUNDLE).target
    return Record(
        name=new.name,
        kind=records.BUNDLE,
        path=f"models/{id}/{records.BUNDLE}",
        form=form,
        architecture=target.architecture,
        parameters=target.dims["parameters"],
        tokenizer=target.tokenizer_hash,
        licence=target.licence,
        made=_now(),
        origin=new.origin,
        head=head,
    )
