"""Finds a model on a node by its hashes: at the same path, in the node's cache, or sent to it.

A model travels through Ray's object store in chunks, which a node fetches once: it keeps the files
in its cache by their hashes, and a later process or run finds them there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from edgedec._support import amounts
from edgedec._support.kept import Folder, NoRoom
from edgedec._support.model_path import DEMO, is_gguf
from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST, sha256_of
from edgedec.errors import BundleError, InputError

# A model in plain data: ``word`` (demo or an absolute path), ``main`` (the file of a GGUF model,
# else empty), ``files`` (sha256 by path in its folder) and ``bytes``.
Description = Mapping[str, Any]
# The chunks of each file, in order, by its path in the folder.
Chunks = Mapping[str, Sequence[Any]]

CHUNK_BYTES = 32 << 20


def describe(path: str | Path) -> Description:
    """Return what a node needs to know about a model that is here.

    Args:
        path: ``demo``, a bundle's folder, or a GGUF file.

    Raises:
        BundleError: no such model, or it is damaged.

    """
    if is_gguf(path):
        from edgedec.gguf import GgufHeader
        from edgedec.gguf.parts import decodable_parts

        parts = decodable_parts(GgufHeader.read(Path(path)))
        files = {part.name: sha256_of(part) for part in parts}
        size = sum(part.stat().st_size for part in parts)
        word, main = str(Path(path).absolute()), Path(path).name
    else:
        bundle = Bundle.open(path)
        files = {name: fact.sha256 for name, fact in bundle.files.items()}
        files[MANIFEST] = sha256_of(bundle.path / MANIFEST)
        size = bundle.size_bytes
        word, main = DEMO if str(path) == DEMO else str(Path(path).absolute()), ""
    return {"word": word, "main": main, "files": files, "bytes": size}


def chunks(model: Description, put: Callable[[bytes], Any]) -> Chunks:
    """Put a model's files, which are here, into the object store; return the references."""
    folder = _folder(model["word"], model["main"])
    return {name: [put(data) for data in _read(folder / name)] for name in model["files"]}


def _read(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while data := stream.read(CHUNK_BYTES):
            yield data


# -- on a node ----------------------------------------------------------------------------------


def find(model: Description) -> str | None:
    """Return the path of a model with these hashes on this node; None if it must be sent."""
    if _is_there(model):
        return str(model["word"])
    kept = _kept(model).usable()
    return None if kept is None or not _matches(kept, model) else _opened(kept, model)


def receive(
    model: Description,
    sent: Chunks,
    get: Callable[[Any], bytes],
    others: Iterable[Description] = (),
) -> str:
    """Write a model that was sent into this node's cache; return its path.

    Args:
        model: as ``describe`` returns it.
        others: models of the same run, which stay in the cache.

    Raises:
        BundleError: a path outside the folder, or other bytes than described.
        InputError: the disk has no room for it.

    """
    if model["files"].keys() != sent.keys():
        raise BundleError(f"{model['word']}: other files were sent than described")
    what = f"{Path(model['word']).name}, sent by a run of --ray"
    kept, keep = _kept(model), [_kept(one).key for one in others]
    try:
        with kept.writing(what, model["bytes"], required=True, keep=keep) as folder:
            for name, parts in sent.items():
                file = folder / _inside(name)
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with file.open("xb") as stream:
                    for part in parts:
                        stream.write(get(part))
            if not _matches(folder, model):
                raise BundleError(f"{model['word']} arrived with other bytes: run it again")
    except NoRoom as error:
        raise InputError(f"no room for the model: {error.strerror}") from None
    except OSError as error:
        raise InputError(f"the model cannot be kept here: {error.strerror}") from None
    found = kept.find()
    assert found is not None
    return _opened(found, model)


def _kept(model: Description) -> Folder:
    """Return the place of these files, whatever their folder is called elsewhere."""
    lines = "".join(f"{digest} {name}\n" for name, digest in sorted(model["files"].items()))
    return Folder("sent", hashlib.sha256(lines.encode()).hexdigest()[:32])


def _folder(word: str, main: str) -> Path:
    if word == DEMO:
        return Bundle.open(DEMO).path
    return Path(word).parent if main else Path(word)


def _opened(folder: Path, model: Description) -> str:
    return str(folder / model["main"])


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise BundleError(f"{name!r} is not a path inside the model's folder")
    return path


def _is_there(model: Description) -> bool:
    """Return whether the model is at the path that it has where the run was started."""
    try:
        folder = _folder(model["word"], model["main"])
    except BundleError:  # an installation without the pair that ships
        return False
    return _matches(folder, model)


def _matches(folder: Path, model: Description) -> bool:
    try:
        return all(sha256_of(folder / name) == sha for name, sha in model["files"].items())
    except BundleError:
        return False


def size(model: Description) -> str:
    """Return its size, for people."""
    return amounts.size(model["bytes"])
