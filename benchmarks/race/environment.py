"""Makes peers' environments and models, each completely or not at all.

A record is written last. An environment without it was interrupted, and one with other
requirements is of another version; both are removed and made again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.bundles import Bundles, digest
from benchmarks.race.children import Failed, ask, execute
from benchmarks.race.protocol import Models, Peer, file_of
from edgedec._support.atomic import write_json
from edgedec._support.fields import json_object
from edgedec._support.model_path import is_gguf

READY = "edgedec-ready.json"
# llama.cpp takes about ten minutes on two idle cores.
_LIMIT_S = 7200.0


@dataclass(frozen=True, slots=True)
class Environment:
    """A peer's environment.

    Attributes:
        folder: where it stands; "" is this interpreter's.
        python: its interpreter.
        versions: of its packages, as ``name==version``.
        paths: further folders in which its interpreter looks for modules.

    """

    folder: str
    python: Path
    versions: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def common(self) -> dict[str, Any]:
        """Return what every request has."""
        return {"folder": self.folder, "paths": list(self.paths)}


def make(peer: Peer, work: Path) -> Environment:
    """Return a peer's environment, made if it is not there; Failed leaves nothing of it."""
    requirements = peer.REQUIREMENTS
    if requirements is None:
        return Environment("", Path(sys.executable), paths=tuple(sys.path))
    folder = (work / "env" / peer.NAME).resolve()
    recipe = _recipe(peer, requirements)
    ready = _ready(folder)
    if ready is None or ready.get("recipe") != recipe:
        _remove(folder)
        try:
            versions = _install(peer, requirements, folder, work / "logs")
        except Failed:
            _remove(folder)
            raise
        ready = {"recipe": recipe, "versions": versions}
        write_json(folder / READY, ready, indent=1)
    return Environment(str(folder), _python(folder), tuple(ready["versions"]))


def here(peer: Peer) -> Environment:
    """Return this interpreter's environment for a peer that it has; Failed if it has not."""
    try:
        found = version(peer.NAME)
    except PackageNotFoundError:
        raise Failed("crash", f"{sys.executable} has no {peer.NAME}: install it there") from None
    return Environment("", Path(sys.executable), (f"{peer.NAME}=={found}",), tuple(sys.path))


def _install(peer: Peer, requirements: tuple[str, ...], folder: Path, logs: Path) -> list[str]:
    """Fill a folder; return the versions of its packages."""
    log = logs / f"{peer.NAME}-install.log"
    folder.parent.mkdir(parents=True, exist_ok=True)
    execute([sys.executable, "-m", "venv", "--without-pip", folder], log, _LIMIT_S)
    # This interpreter's pip: to copy it there takes longer than some installs.
    python = _python(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    pip += ["--disable-pip-version-check", "--no-input"]
    if requirements:
        execute([*pip, "install", "--quiet", *requirements], log, _LIMIT_S)
    request = {"task": "build", "folder": str(folder), "pip": pip}
    found = ask(python, file_of(peer), request, logs / f"{peer.NAME}-build.log", _LIMIT_S)
    return [str(version) for version in found["versions"]]


def _recipe(peer: Peer, requirements: tuple[str, ...]) -> str:
    """Return a digest of what an environment is made of."""
    build = getattr(peer, "build", None)
    source = "" if build is None else inspect.getsource(build)
    parts = [*requirements, source, platform.python_version()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _ready(folder: Path) -> dict[str, Any] | None:
    with suppress(OSError):
        found = json_object((folder / READY).read_bytes())
        if found is not None and isinstance(found.get("versions"), list):
            return found if _python(folder).exists() else None
    return None


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Failed("crash", f"{folder} is half made and cannot be removed: {error}") from None


# -- the two models in the formats that peers read; each is made once and kept ------------------


@dataclass(slots=True)
class ModelMaker:
    """The ``Maker`` that peers are given.

    Attributes:
        bundles: makes what edgedec exports.
        preset: what the target is grown to; None leaves it as it is.
        work: folder of what peers convert.
        peers: by name.
        environments: by peer's name; filled while environments are made.

    """

    bundles: Bundles
    preset: str | None
    work: Path
    peers: Mapping[str, Peer]
    environments: Mapping[str, Environment] = field(default_factory=dict)

    @property
    def drafts(self) -> bool:
        return self.bundles.drafts

    def checkpoint(self, role: str) -> Path:
        return self.bundles.checkpoint(role, self._preset(role)).resolve()

    def bundle(self, weights: str) -> Path:
        weights, _, block_size = weights.partition("-")
        return self.bundles.bundle(
            weights, target=self.preset, block_size=int(block_size) if block_size else None
        ).resolve()

    def gguf(self, role: str, weights: str) -> Path:
        return self.bundles.gguf(role, weights, self._preset(role)).resolve()

    def converted(self, peer: str, role: str, weights: str) -> Path:
        given = self.bundles.source(role)
        source = given.resolve() if is_gguf(given) else self.checkpoint(role)
        out = (self.work / "models" / f"{peer}-{role}-{weights}-{digest(source)}").resolve()
        if not (out / READY).is_file():
            shutil.rmtree(out, ignore_errors=True)
            environment = self.environments[peer]
            request = {
                **environment.common,
                "task": "convert", "role": role, "weights": weights,
                "checkpoint": str(source), "out": str(out),
            }  # fmt: skip
            log = self.work / "logs" / f"{out.name}.log"
            try:
                ask(environment.python, file_of(self.peers[peer]), request, log, _LIMIT_S)
            except Failed:
                shutil.rmtree(out, ignore_errors=True)
                raise
            write_json(out / READY, {"checkpoint": str(source)})
        return out

    def converted_pair(self, peer: str, weights: str, draft_weights: str) -> Models:
        target = {"target": str(self.converted(peer, "target", weights))}
        if not self.drafts:
            return target
        return {**target, "draft": str(self.converted(peer, "draft", draft_weights))}

    def _preset(self, role: str) -> str | None:
        return self.preset if role == "target" else None


def size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
