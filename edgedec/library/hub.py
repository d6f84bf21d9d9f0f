"""Fetches a model's files from a hub, by huggingface_hub; every file's hash is checked.

Tokens for gated and private models belong to huggingface_hub (``hf auth login``): edgedec neither
asks for them nor stores them. Nothing that is fetched is executed.
"""

from __future__ import annotations

import errno
import hashlib
import inspect
import os
import posixpath
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from edgedec._support import amounts, installation
from edgedec._support.fields import one_line
from edgedec._support.files import open_regular
from edgedec._support.ready_path import GENAI, ONNX
from edgedec.bundle.onnx_file import read_graph
from edgedec.errors import BundleError, ExtraMissing, InputError
from edgedec.export import Progress
from edgedec.library.choosing import Choice, Fetched, RemoteFile, choose
from edgedec.library.making import Listener
from edgedec.library.records import Origin
from edgedec.library.reference import Reference, hub_folder
from edgedec.library.store import Library

_COMMIT = re.compile(r"[0-9a-f]{40}")
_AGAIN = "files that were fetched are kept, and the same command fetches the others"
_TRIES, _PAUSE_S = 4, 1.0
# The HTTP packages of huggingface_hub's versions.
_CLIENTS = ("requests", "urllib3", "httpx", "httpcore", "httpx2", "httpcore2")


@dataclass(frozen=True, slots=True)
class _Repository:
    """A repository at a revision, as the hub describes it."""

    commit: str
    licence: str | None
    files: Mapping[str, RemoteFile]


def fetch(
    reference: Reference, library: Library, listener: Listener, *, head: bool = False
) -> Fetched:
    """Fetch what a model needs, or a head; files that are there are not fetched again.

    Args:
        library: where it is kept.
        listener: receives revision, licence, size, and each file's sha256.

    Raises:
        InputError: the model does not exist, access is denied, or the hub cannot be reached.
        BundleError: a file's size or hash is not the hub's.
        RuntimeUnavailable: the extra ``hub`` is not installed.

    """
    client = _client()
    with _explained(reference, library):
        found = _repository(client, reference)
        choice = choose(reference, found.files, head=head)
        size = sum(found.files[name].size_bytes for name in choice.names)
        listener.report(
            f"{reference.repo}: revision {found.commit}, licence {found.licence or 'unstated'},"
            f" {len(choice.names)} files, {size / 1e6:.1f} MB"
        )
        _check_room(library, size)
        lock = library.locked(
            hub_folder(reference.repo),
            lambda: listener.report("another edgedec fetches this model: waiting"),
        )
        with lock:
            return _fetch(client, reference, found, choice, library, listener)


def _client() -> ModuleType:
    try:
        import huggingface_hub
        from huggingface_hub.utils import (  # type: ignore[attr-defined,unused-ignore]
            disable_progress_bars,
        )
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            installation.needs("fetching a model", "hub,export", error.name or "huggingface_hub")
        ) from None
    if not sys.stderr.isatty():
        disable_progress_bars()
    return huggingface_hub


def _endpoint() -> str | None:
    """Return another hub's address, as huggingface_hub's own variable names it."""
    return os.environ.get("HF_ENDPOINT") or None


def _repository(client: ModuleType, reference: Reference) -> _Repository:
    info = client.HfApi(endpoint=_endpoint()).model_info(
        reference.repo, revision=reference.revision, files_metadata=True
    )
    commit = info.sha
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise BundleError(f"{reference.repo}: the hub names no commit: try again later")
    files = {one.rfilename: _remote(one) for one in info.siblings or ()}
    return _Repository(commit, _licence(info), files)


def _remote(sibling: Any) -> RemoteFile:
    lfs = sibling.lfs
    sha256 = lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)
    return RemoteFile(int(sibling.size or 0), sha256, sibling.blob_id)


def _licence(info: Any) -> str | None:
    """Return the licence that the model's card states."""
    stated = getattr(info.card_data, "license", None) if info.card_data is not None else None
    if stated == "other":
        stated = getattr(info.card_data, "license_name", None) or stated
    return one_line(stated) if isinstance(stated, str) else None


def _check_room(library: Library, size: int) -> None:
    folder = library.folder
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{amounts.size(size)} do not fit into the {amounts.size(free)} that are free in"
            f" {library.folder}: make room (`edgedec rm --unused`), or set EDGEDEC_LIBRARY"
        )


def _fetch(
    client: ModuleType,
    reference: Reference,
    found: _Repository,
    choice: Choice,
    library: Library,
    listener: Listener,
) -> Fetched:
    digests, folder, done = {}, library.hub, 0
    size = sum(found.files[name].size_bytes for name in choice.names)
    names = list(choice.names)
    for name in names:  # which grows by what a graph names
        bar = {}
        if listener.fetching is not None:
            on_bytes = partial(_on_bytes, listener.fetching, f"fetching {name}", done, size)
            on_bytes(0)
            bar = _bar(client, on_bytes)
        path = _download(client, reference.repo, found.commit, name, library, listener, bar)
        digests[name] = _checked(path, name, found.files[name])
        listener.report(f"{name}  sha256 {digests[name]}")
        folder = path.parents[name.count("/")]
        if name.endswith(ONNX):
            more = [one for one in named_by(path, name) if one in found.files.keys() - {*names}]
            names += more
            added = sum(found.files[one].size_bytes for one in more)
            _check_room(library, added)
            size += added
        done += found.files[name].size_bytes
    if listener.fetching is not None:
        listener.fetching(f"fetched {reference.repo}", done, size)
    origin = Origin(reference.where, found.commit, digests, size, found.licence)
    if choice.graph.endswith(GENAI):  # a model's folder in the repository
        folder = folder / choice.graph.rpartition("/")[0]
    return Fetched(folder, choice, origin)


def named_by(path: Path, name: str) -> list[str]:
    """Return the files of weights that a graph names, as their repository names them."""
    found = sorted({location for location, _, _ in read_graph(path).stored})
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), one)) for one in found]


def _download(
    client: ModuleType,
    repo: str,
    commit: str,
    name: str,
    library: Library,
    listener: Listener,
    bar: dict[str, Any],
) -> Path:
    """Download a file and return its path; a broken connection is retried."""
    for tries_left in reversed(range(_TRIES)):
        try:
            path = client.hf_hub_download(
                repo, name, revision=commit, cache_dir=library.hub, endpoint=_endpoint(), **bar
            )
            return Path(path)
        except Exception as error:
            if not tries_left or not _broke(error):
                raise
            listener.report(f"{name}: the connection broke: resuming")
            time.sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


def _on_bytes(fetching: Progress, stage: str, before: int, size: int, done: int) -> None:
    fetching(stage, before + done, size)


def _bar(client: ModuleType, on_bytes: Callable[[int], None]) -> dict[str, Any]:
    """Return the argument that reports the bytes of a file while they come.

    Versions of huggingface_hub that do not take it report whole files alone.
    """
    if "tqdm_class" not in inspect.signature(client.hf_hub_download).parameters:
        return {}
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined,unused-ignore]

    class Bar(tqdm):  # type: ignore[misc,valid-type,unused-ignore]
        """A bar that is not drawn."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call,unused-ignore]
            self._done = int(options.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self._done += int(n or 0)
            on_bytes(self._done)

    return {"tqdm_class": Bar}


def _broke(error: Exception) -> bool:
    """Return whether the network failed, rather than the hub or the disk."""
    answered = getattr(error, "response", None) is not None
    return not answered and type(error).__module__.split(".")[0] in _CLIENTS


def _checked(path: Path, name: str, remote: RemoteFile) -> str:
    """Return a file's sha256; a file that differs from the hub's facts is removed and refused."""
    sha256, sha1, size = hashlib.sha256(), hashlib.sha1(usedforsecurity=False), 0
    with open_regular(path) as stream:
        sha1.update(b"blob %d\0" % os.fstat(stream.fileno()).st_size)
        while block := stream.read(1 << 20):
            sha256.update(block)
            sha1.update(block)
            size += len(block)
    digest = sha256.hexdigest()
    expected, met = remote.sha256, digest
    if expected is None:
        expected, met = remote.git_sha1, sha1.hexdigest()
    if size == remote.size_bytes and met == expected:
        return digest
    for file in (path.resolve(), path):
        with suppress(OSError):
            file.unlink()
    raise BundleError(
        f"{name} is not what the hub says: {size} bytes with hash {met}, expected"
        f" {remote.size_bytes} with {one_line(str(expected))}; it was removed: run the command"
        " again"
    )


@contextmanager
def _explained(reference: Reference, library: Library) -> Iterator[None]:
    """Turn errors of the hub and the network into one line that says what to do."""
    try:
        yield
    except (InputError, BundleError):
        raise
    except Exception as error:
        line = _line(error, reference, library)
        if line is None:
            raise
        raise InputError(line) from None


def _line(error: Exception, reference: Reference, library: Library) -> str | None:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    repo = reference.repo
    if "GatedRepoError" in kinds:
        return (
            f"{repo} is gated: accept its terms on its page, then `hf auth login` with a token of"
            " that account"
        )
    if "RevisionNotFoundError" in kinds:
        return f"{repo} has no revision {reference.revision}"
    if "RepositoryNotFoundError" in kinds:
        return (
            f"{repo} is not on the hub, or is private: check its name; for a private one,"
            " `hf auth login`"
        )
    if "OfflineModeIsEnabled" in kinds:
        return f"{repo} is not in the library, and HF_HUB_OFFLINE forbids fetching it"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return (
            f"the hub refuses the token that is stored here ({status}): `hf auth login` renews it"
        )
    if status is not None:
        return f"the hub answered {status} for {repo}: try again later; {_AGAIN}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left in {library.folder}: make room, or set EDGEDEC_LIBRARY; {_AGAIN}"
    if "LocalEntryNotFoundError" in kinds or _broke(error):
        return f"{repo} cannot be fetched: no connection to the hub, or it broke; {_AGAIN}"
    if isinstance(error, OSError) and "onsistency check" in str(error):
        return f"{repo} cannot be fetched: a file came with another length; {_AGAIN}"
    return None
