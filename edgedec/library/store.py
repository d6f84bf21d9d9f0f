"""The library's folder: models by id, their files by content.

::

    models/<id>/model.json   what it is and where it came from
    models/<id>/bundle/      the bundle that was made of a checkpoint
    blobs/<sha256>           every file of these bundles, once: the two are one file (hard links)
    hub/                     what was fetched, as huggingface_hub keeps it
    locks/                   one file for each model that is being made

A model's folder appears complete or not at all, and a model that two processes want is made once.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgedec._support import user_folders
from edgedec._support.atomic import remove_folder, sync
from edgedec._support.model_path import hub_name
from edgedec.bundle.manifest import listed_files
from edgedec.errors import InputError
from edgedec.library import records
from edgedec.library.records import CALIBRATED, GGUF, Form, Model, Record
from edgedec.library.reference import hub_folder

_log = logging.getLogger("edgedec")
_ID = re.compile(r"[0-9a-f]{16}")
_SHORTEST_ID = 4
_MAKING = ".making-"
_POLL_S = 0.2


class Library:
    """The models of one folder, by default the user's own."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or user_folders.library()

    @property
    def hub(self) -> Path:
        """The folder in which huggingface_hub keeps downloads."""
        return self.folder / "hub"

    @property
    def _models(self) -> Path:
        return self.folder / "models"

    @property
    def _blobs(self) -> Path:
        return self.folder / "blobs"

    def models(self) -> list[Model]:
        """Return all models, by name, the newest of a name first."""
        found = [self.get(id) for id in _names(self._models) if _ID.fullmatch(id)]
        newest = sorted(
            (one for one in found if one is not None), key=lambda m: m.record.made, reverse=True
        )
        return sorted(newest, key=lambda model: model.name)

    def get(self, id: str) -> Model | None:
        """Return the model of this id, or None."""
        return records.read(self.folder, self._models / id)

    def find(self, word: str, form: Form | None = None) -> Model | None:
        """Return the model of this name, or the only one whose id begins so; None if none does.

        Of several forms of one model the calibrated one is taken, else the newest.

        Args:
            word: what the user wrote.
            form: only a model of this form.

        Raises:
            InputError: several models have this name.

        """
        named = self.matching(word)
        if len({records.contents(one) for one in named}) > 1:
            raise InputError(records.several(word, named))
        named = [one for one in named if form is None or one.record.form == form]
        best = [one for one in named if one.record.form.calibration == CALIBRATED]
        return next(iter(best or named), None)

    def matching(self, word: str) -> list[Model]:
        """Return all models of a name, or the only one whose id begins so; can be empty.

        A GGUF file's name may leave out what follows the colon, if no model has the shorter name.
        """
        models, word = self.models(), hub_name(word)
        named = [one for one in models if one.name == word]
        named = named or [one for one in models if one.name.partition(":")[0] == word]
        if named or len(word) < _SHORTEST_ID:
            return named
        begun = [one for one in models if one.id.startswith(word)]
        return begun if len(begun) == 1 else []

    @contextmanager
    def locked(self, id: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Let one process at a time make a model; ``on_wait`` is called once if another has it."""
        from filelock import FileLock, Timeout

        try:
            (self.folder / "locks").mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FileLock(self.folder / "locks" / f"{id}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                on_wait()
                lock.acquire(poll_interval=_POLL_S)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def adding(self, id: str) -> Iterator[Path]:
        """Yield an empty folder for a model's files, in which ``publish`` finds them.

        If the block ends early, the folder is removed. Call it in ``locked``: a folder that exists
        was then left by a killed process. Those of all models are removed first.

        Raises:
            InputError: the library cannot be written.

        """
        staging = self._models / f"{_MAKING}{id}"
        try:
            shutil.rmtree(staging, ignore_errors=True)
            self._drop_unfinished()
            staging.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def publish(self, staging: Path, id: str, record: Record) -> Model:
        """Give a folder of ``adding`` its name; what it replaces is removed.

        Models made of the same source before it changed, in whatever form, are replaced.

        Raises:
            OSError: it cannot be written.

        """
        records.write(staging, record)
        if (bundle := staging / "bundle").is_dir():
            self._share(bundle)
        sync(staging)
        target = self._models / id
        if target.exists():  # damaged, or the caller would have used it
            remove_folder(target)
        staging.rename(target)
        sync(self._models)
        made = self.get(id)
        assert made is not None, f"{target} was published and cannot be read"
        for other in self.models():
            if other.id != id and _replaces(record, other.record):
                self._remove(other.id)
        self._drop_unshared()
        return made

    def _share(self, bundle: Path) -> None:
        """Store each file of a new bundle under its sha256, or take the one that is there."""
        self._blobs.mkdir(mode=0o700, exist_ok=True)
        for name, fact in listed_files(bundle).items():
            file, blob = bundle / name, self._blobs / fact.sha256
            # A disk without hard links keeps the bundle's own file.
            with suppress(OSError):
                if blob.exists() and blob.stat().st_size == fact.size_bytes:
                    _link(blob, file)
                else:
                    _link(file, blob)

    def _drop_unshared(self) -> None:
        """Remove files that belong to no bundle any more."""
        for name in _names(self._blobs):
            with suppress(OSError):
                if (self._blobs / name).stat().st_nlink == 1:
                    (self._blobs / name).unlink()

    def remove(self, model: Model) -> None:
        """Remove a model and what was fetched for it; what another one needs stays."""
        self._remove(model.id)
        self._drop_unshared()
        if model.record.origin.revision is not None:
            self._drop_fetched(set().union(*(one.record.sources for one in self.models())))

    def _remove(self, id: str) -> None:
        with suppress(FileNotFoundError):  # another process was quicker
            remove_folder(self._models / id)

    def clean(self) -> None:
        """Remove files that no model needs to run.

        Removes files left by killed processes, damaged models, files that belong to no model, and
        fetched checkpoints that were made into bundles; another form would fetch them again.
        """
        self._drop_unfinished()
        for name in _names(self._models):
            if _ID.fullmatch(name) and self.get(name) is None:
                shutil.rmtree(self._models / name, ignore_errors=True)
        self._drop_unshared()
        self._drop_fetched({m.record.origin.where for m in self.models() if m.record.kind == GGUF})

    def clear(self) -> None:
        """Remove everything except models that other processes are making or fetching."""
        for name in _names(self._models):
            if _ID.fullmatch(name):
                self._remove(name)
        self.clean()

    def _drop_unfinished(self) -> None:
        """Remove folders of models that no process is making any more."""
        for name in _names(self._models):
            if name.startswith(".") and not self._in_use(name.removeprefix(_MAKING)):
                shutil.rmtree(self._models / name, ignore_errors=True)
                if name.startswith(_MAKING):
                    _log.warning("removed %s, left by a command that was killed", name)

    def _drop_fetched(self, needed: set[str]) -> None:
        """Remove what was fetched from a hub, except for these names."""
        folders = {hub_folder(name) for name in needed}
        for name in _names(self.hub):
            if name not in folders and not self._in_use(name):
                shutil.rmtree(self.hub / name, ignore_errors=True)

    def _in_use(self, id: str) -> bool:
        """Return whether a process is making the model of this id."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder / "locks" / f"{id}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:  # no folder of locks: nothing was ever made here
            return False
        lock.release()
        return False

    def size_bytes(self) -> int:
        """Return the bytes of the library on disk, shared files counted once."""
        seen: dict[tuple[int, int], int] = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with suppress(OSError):
                    facts = Path(folder, name).lstat()
                    seen[facts.st_dev, facts.st_ino] = facts.st_size
        return sum(seen.values())

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"the library {self.folder} cannot be written: {error.strerror or error}; set"
            " EDGEDEC_LIBRARY to another folder"
        )


def _replaces(new: Record, old: Record) -> bool:
    """Return whether a model was made of the same source, before that or edgedec changed."""
    same = (new.name, new.origin.where) == (old.name, old.origin.where)
    return same and (new.origin.files != old.origin.files or new.form == old.form)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return []


def _link(source: Path, file: Path) -> None:
    """Make ``file`` a second name of ``source``, in one move."""
    beside = file.with_name(f".edgedec-{secrets.token_hex(6)}")
    os.link(source, beside)
    try:
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)
