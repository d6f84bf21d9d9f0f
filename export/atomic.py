"""Writes a folder atomically: it appears complete or not at all."""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from edgedec._support.atomic import sync
from edgedec._support.fields import one_line
from edgedec._support.locks import abandoned, held, in_turn
from edgedec.bundle.manifest import listed_files, unlisted
from edgedec.errors import BundleError, ExportError, InputError

_log = logging.getLogger("edgedec")
_PARTIAL, _REPLACED = ".partial", ".replaced"
_UNFINISHED = re.compile(r"\.(?P<out>.+)\.[a-z0-9_]{8}\.(partial|replaced)")
# Folders of a bundle that exports write.
_FOLDERS = ("target/", "draft/", "tokenizer/", "draft-tokenizer/")


def check_free(out: Path, *, overwrite: bool) -> None:
    """Refuse an ``out`` that exists, unless it is a bundle that may be replaced."""
    if not out.exists() and not out.is_symlink():
        return
    if not overwrite:
        raise InputError(f"{out} exists: give another --out, or --overwrite to replace a bundle")
    if not out.is_dir() or out.is_symlink():
        raise InputError(f"{out} is not a bundle, so it is not replaced: give another --out")
    if any(out.iterdir()):
        _check_bundle(out)


@contextmanager
def appearing(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary folder next to ``out`` that replaces it if the block succeeds.

    Its files are flushed to the disk before it is renamed. If the block ends early, even by an
    interrupt or a full disk, it is removed. Each process has its own, and what killed processes
    left next to ``out`` is removed first, or brought back if it was set aside to be replaced.

    Raises:
        InputError: ``out`` exists.
        ExportError: the disk is full, or the folder cannot be written.

    """
    with _plainly(out):
        check_free(out, overwrite=overwrite)
        out.parent.mkdir(parents=True, exist_ok=True)
        stack = ExitStack()
        with in_turn(out.parent) as alone:
            if alone:
                _clean(out.parent)
            folder = Path(tempfile.mkdtemp(_PARTIAL, f".{out.name}.", out.parent))
            stack.enter_context(held(folder))
        try:
            yield folder
            for path in sorted(folder.rglob("*"), reverse=True):
                sync(path)
            sync(folder)
            folder.chmod(0o777 & ~_umask())
            check_free(out, overwrite=overwrite)
            with in_turn(out.parent):
                _put(folder, out, overwrite=overwrite)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            stack.close()


def _clean(parent: Path) -> None:
    """Remove what killed exports left in a folder, and bring back what they had set aside."""
    for path in sorted(parent.iterdir()):
        named = _UNFINISHED.fullmatch(path.name)
        with suppress(OSError):  # of another user, or no folder
            if named is None or not abandoned(path):
                continue
            out = path.with_name(named["out"])
            if path.suffix == _REPLACED and not out.exists():
                path.rename(out)
                _log.warning("%s is back: an export that was to replace it was killed", out)
                continue
            shutil.rmtree(path)
            _log.warning("removed %s, which an export that was killed had left", path)


@contextmanager
def _plainly(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ExportError(
                f"no space left for {out}: free some or use another disk; nothing was written"
            ) from None
        raise ExportError(f"{out} cannot be written: {error.strerror or error}") from None


def _put(folder: Path, out: Path, *, overwrite: bool) -> None:
    """Rename into place; a folder to replace is set aside first and restored on failure."""
    aside = None
    # If it has appeared since, another export wrote it.
    if overwrite and out.exists():
        aside = folder.with_suffix(_REPLACED)
        out.rename(aside)
    try:
        folder.rename(out)
    except BaseException as error:  # an interrupt must not lose the old folder either
        if aside is not None:
            with suppress(OSError):
                aside.rename(out)
        if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise InputError(f"{out} appeared while this export ran: give another --out") from None
        raise
    sync(out.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


def _check_bundle(folder: Path) -> None:
    """Refuse a folder that contains anything but a bundle, even a damaged one, before deleting."""
    try:
        files = listed_files(folder)
    except BundleError:
        raise InputError(
            f"{folder} is not a bundle, so it is not replaced: give another --out"
        ) from None
    # A manifest can state any file as its own.
    foreign = [name for name in files if not name.startswith(_FOLDERS)]
    foreign += unlisted(folder, files)
    if foreign:
        raise InputError(
            f"{folder} also contains {one_line(foreign[0])!r}, not part of the bundle, so it"
            " is not replaced: move that away or give another --out"
        )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
