"""Opens a package, and reads its functions and weights, with a check of every length."""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from edgedec._support.fields import Fields, json_object, one_line
from edgedec._support.files import open_regular, read_regular
from edgedec.bundle.messages import Message
from edgedec.bundle.protobuf import Damaged
from edgedec.coreml.blob import BlobFile
from edgedec.coreml.program import Function
from edgedec.coreml.schema import MESSAGES
from edgedec.coreml.types import Stored
from edgedec.errors import BundleError

SUFFIX = ".mlpackage"
MODEL = "Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"
MANIFEST = "Manifest.json"
FILE_VERSION = "1.0.0"
# Of iOS 18 and macOS 15.
SPECIFICATION = 9
METADATA_KEY = "edgedec"
_ITEMS = ("com.apple.CoreML/model.mlmodel", "com.apple.CoreML/weights")
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_MODEL_BYTES = 1 << 28


def package_files(folder: Path) -> tuple[Path, Path, Path]:
    """Return the files of a package: the program, the manifest and the weights."""
    return folder / MODEL, folder / MANIFEST, folder / WEIGHTS


class Package:
    """A package whose manifest, program and blob file have been opened.

    Attributes:
        folder: the ``.mlpackage``.
        facts: what the exporter stated for a runtime.

    """

    def __init__(self, folder: Path, model: Message, blob: BlobFile) -> None:
        self.folder, self.blob = folder, blob
        self._functions: Mapping[str, memoryview] = model["mlProgram"]["functions"]
        self._model = model
        self._decoded: dict[str, Function] = {}

    @classmethod
    def open(cls, path: Path) -> Package:
        """Open a package.

        Args:
            path: the ``.mlpackage``, or its ``model.mlmodel``.

        Raises:
            BundleError: a file is missing, damaged, or of another version.

        """
        folder = package_folder(path)
        model, manifest, weights = package_files(folder)
        _check_manifest(manifest)
        return cls(folder, _read_model(model), BlobFile(weights))

    @property
    def names(self) -> list[str]:
        """Return the names of its functions, sorted."""
        return sorted(self._functions)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the exporter stated for a runtime.

        Raises:
            BundleError: it was not exported by edgedec.

        """
        described = self._model.get("description", {}).get("metadata", {})
        stated = described.get("userDefined", {}).get(METADATA_KEY)
        if stated is None:
            raise BundleError(f"{self.folder}: not exported by edgedec: use `edgedec export`")
        found = json_object(stated)
        if found is None:
            raise self._damaged("its metadata is not a JSON object")
        return found

    def function(self, name: str) -> Function:
        """Return a function.

        Raises:
            BundleError: there is none of this name, or it is damaged.

        """
        if name not in self._decoded:
            if name not in self._functions:
                has = ", ".join(self.names[:20])
                raise BundleError(
                    f"{self.folder}: no function {name!r}, it has {one_line(has)}: export it again"
                )
            try:
                self._decoded[name] = Function.decoded(name, self._functions[name])
            except Damaged:
                raise self._damaged(f"its function {one_line(name)!r} is not a decoder's") from None
        return self._decoded[name]

    def check(self) -> None:
        """Decode every function, and find every constant of each in the blob file.

        Raises:
            BundleError: a function is damaged, or a constant is not there.

        """
        for name in self.names:
            for operation in self.function(name).operations:
                operands = (each for all in operation.inputs.values() for each in all)
                for constant in (operation.value, *operands):
                    if isinstance(constant, Stored):
                        self.blob.place(constant)

    @property
    def weight_bytes(self) -> int:
        return len(self.blob)

    def _damaged(self, what: str) -> BundleError:
        return BundleError(f"{self.folder}: {what}: damaged, export it again")


def package_folder(path: Path) -> Path:
    """Return the package that a path names: itself, or the package of a ``model.mlmodel``."""
    parts = len(Path(MODEL).parts)
    return path.parents[parts - 1] if path.name == Path(MODEL).name else path


def check_listed(path: Path, files: Collection[Path]) -> None:
    """Check a bundle's package, and that all its files are listed.

    Args:
        path: its ``model.mlmodel``.
        files: all the files that are listed for the model.

    Raises:
        BundleError: a file is damaged or not listed.

    """
    listed = {file.resolve() for file in files}
    for file in package_files(package_folder(path)):
        if file.resolve() not in listed:
            raise BundleError(
                f"{file}: the manifest does not list it among the model's files: export the bundle"
                " again"
            )
    Package.open(path).check()


def _check_manifest(path: Path) -> None:
    """Check that a package's manifest names the files that are read, and no others."""
    try:
        data = read_regular(path, _MAX_MANIFEST_BYTES)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}: export it again") from None
    found = None if data is None else json_object(data)
    if found is None:
        raise BundleError(f"{path}: not the manifest of a CoreML package: export it again")
    manifest = Fields(found, str(path))
    if manifest.text("fileFormatVersion") != FILE_VERSION:
        raise manifest.wrong("fileFormatVersion", FILE_VERSION)
    items = {name: item.text("path") for name, item in manifest.objects("itemInfoEntries")}
    if sorted(items.values()) != sorted(_ITEMS):
        raise manifest.wrong("itemInfoEntries", f"{' and '.join(_ITEMS)}")
    if items.get(manifest.text("rootModelIdentifier")) != _ITEMS[0]:
        raise manifest.wrong("rootModelIdentifier", f"that of {_ITEMS[0]}")


def _read_model(path: Path) -> Message:
    """Read the program's message; its functions are decoded when they are asked for."""
    try:
        with open_regular(path) as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the file is empty"
        raise BundleError(f"{path}: cannot be read: {reason}: export it again") from None
    if len(content) > _MAX_MODEL_BYTES:
        raise BundleError(f"{path}: larger than {_MAX_MODEL_BYTES >> 20} MiB: refused")
    try:
        # A copy, since a mapped file could change, or end, while it is used.
        model = MESSAGES.decode("Model", memoryview(content[:]))
        version = model.get("specificationVersion", 0)
        sound = model["mlProgram"]["version"] == 1 and model["mlProgram"]["functions"]
    except (Damaged, KeyError):
        raise BundleError(f"{path}: not a CoreML program, or damaged: export it again") from None
    if version != SPECIFICATION or not sound:
        raise BundleError(
            f"{path}: specification version {version}, this edgedec reads {SPECIFICATION}:"
            " export it again"
        )
    return model


__all__ = ["Package", "check_listed", "package_files", "package_folder"]
