"""Converts a checkpoint's folder to a model of the library."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edgedec._support.opened_before import OpenedBefore
from edgedec._version import __version__
from edgedec.bundle import Bundle
from edgedec.errors import CheckpointError, ParityError
from edgedec.export import ExportOptions, Progress, export_bundle, source_files
from edgedec.gguf import GgufHeader
from edgedec.library import drafts, records
from edgedec.library.choosing import Fetched
from edgedec.library.records import Form, Model, Origin, Record
from edgedec.library.store import Library

_VETTED = "checkpoints"
# Forms to try if none is requested: each one if the form before fails parity.
_MADE = (Form(), Form("int8"), Form("fp32"))
_PREFERRED = (Form(calibration=records.CALIBRATED), *_MADE)


@dataclass(frozen=True, slots=True)
class Listener:
    """Receives progress while a model is made.

    Attributes:
        say: takes a sentence.
        progress: takes the stages of an export; may be None.
        fetching: takes the bytes of a download, file by file; may be None.

    """

    say: Callable[[str], None]
    progress: Progress | None = None
    fetching: Progress | None = None


def of_checkpoint(
    library: Library,
    folder: Path,
    form: Form | None,
    listener: Listener,
    origin: Origin | None = None,
) -> Model:
    """Return the model that a checkpoint's folder makes in a form; it is made once.

    Args:
        library: where it is kept.
        folder: a Hugging Face folder.
        form: how weights are stored; None takes a form that was made before, the calibrated one
            first, else int4, or a finer one for a model that fails parity in int4.
        listener: receives progress.
        origin: where the folder came from, if it was fetched.

    Raises:
        ExportError, InputError, RuntimeUnavailable: as ``export_bundle`` raises them.

    """
    origin = origin or _origin(folder)
    for one in (form,) if form is not None else _PREFERRED:
        if found := library.get(_id(origin, one)):
            return found
    if form is not None:
        return _made(library, folder, form, listener, origin)
    for one in _MADE[:-1]:
        try:
            return _made(library, folder, one, listener, origin)
        except ParityError as error:
            listener.say(str(error))
    return _made(library, folder, _MADE[-1], listener, origin)


def of_fetched(library: Library, fetched: Fetched, form: Form | None, listener: Listener) -> Model:
    """Return the model of files that were fetched; see ``of_checkpoint``."""
    choice, origin = fetched.choice, fetched.origin
    if choice.kind == records.GGUF:
        return of_gguf(library, fetched.folder / choice.names[0], choice.label, origin)
    return of_checkpoint(library, fetched.folder, form, listener, origin)


def _made(library: Library, folder: Path, form: Form, listener: Listener, origin: Origin) -> Model:
    id = _id(origin, form)
    with library.locked(id, lambda: listener.say("another edgedec makes this model: waiting")):
        if found := library.get(id):
            return found
        with library.adding(id) as staging:
            listener.say(_what(origin.where if origin.revision else str(folder), form))
            report = export_bundle(
                ExportOptions(
                    target=folder,
                    out=staging / records.BUNDLE,
                    weights=form.weights,
                    calibration=form.calibration,
                    licence=origin.licence,
                ),
                listener.progress,
            )
            listener.say(f"made in {report.seconds:.1f} s: {library.folder / 'models' / id}")
            return library.publish(staging, id, _record(staging, id, form, origin))


def _what(source: str, form: Form) -> str:
    """Describe the form that is made, and the calibrated one."""
    about = f"making {source} into a bundle ({form})"
    if form.weights != "int4":
        return about
    if form.calibration == records.CALIBRATED:
        return f"{about}: calibration on its own texts takes minutes"
    return f"{about}: weights are rounded to nearest; --calibrated takes minutes and is closer"


def _origin(folder: Path) -> Origin:
    """Describe a checkpoint's folder; files that were hashed before are not read again."""
    files = source_files(folder)
    known = OpenedBefore(_VETTED, __version__)
    try:
        digests = {file.name: known.digest([file]) for file in files}
        size = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise CheckpointError(
            f"{error.filename or folder} cannot be read: {error.strerror}"
        ) from None
    known.save()
    where = os.path.abspath(folder)  # noqa: PTH100 - a link keeps its own name
    return Origin(where, None, digests, size)


def of_gguf(library: Library, file: Path, label: str, origin: Origin) -> Model:
    """Return the model of a GGUF file that was fetched into the library; it stays where it is.

    ``label`` tells it from others of its repository.
    """
    header, facts = GgufHeader.read(file), drafts.of_gguf(file)
    form = Form(header.quantisation)
    id = _id(origin, form)
    record = Record(
        name=f"{origin.where}:{label}",
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


def _id(origin: Origin, form: Form) -> str:
    """Return the id of a model: the same for the same bytes, form and version of edgedec."""
    raw = [origin.files, form.weights, form.calibration, __version__]
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()[:16]


def _record(staging: Path, id: str, form: Form, origin: Origin) -> Record:
    target = Bundle.open(staging / records.BUNDLE).target
    return Record(
        name=origin.where if origin.revision else Path(origin.where).name,
        kind=records.BUNDLE,
        path=f"models/{id}/{records.BUNDLE}",
        form=form,
        architecture=target.architecture,
        parameters=target.dims["parameters"],
        tokenizer=target.tokenizer_hash,
        licence=target.licence,
        made=_now(),
        origin=origin,
    )
