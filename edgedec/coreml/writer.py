"""Writes a package: functions one after the other, weights as they come."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from edgedec.bundle.messages import Message
from edgedec.coreml.blob import BlobWriter
from edgedec.coreml.package import (
    FILE_VERSION,
    MANIFEST,
    METADATA_KEY,
    MODEL,
    SPECIFICATION,
    WEIGHTS,
    package_files,
)
from edgedec.coreml.program import Function
from edgedec.coreml.schema import MESSAGES
from edgedec.coreml.types import FEATURES, TensorType

_AUTHOR = "com.apple.CoreML"


class PackageWriter:
    """A package under construction; use it as a context manager.

    Args:
        folder: the ``.mlpackage``, which must not exist.

    """

    def __init__(self, folder: Path) -> None:
        self._files = dict(zip((MODEL, MANIFEST, WEIGHTS), package_files(folder), strict=True))
        self._files[WEIGHTS].parent.mkdir(parents=True)
        self.blob = BlobWriter(self._files[WEIGHTS])
        self._functions: dict[str, bytes] = {}
        self._described: list[Message] = []

    def __enter__(self) -> PackageWriter:
        return self

    def __exit__(self, *details: object) -> None:
        self.blob.__exit__(*details)

    def add(self, function: Function) -> None:
        """Add a function; its message is all that is kept of it."""
        self._functions[function.name] = function.encoded()
        types = {name: type for op in function.operations for name, type in op.outputs}
        self._described.append({
            "name": function.name,
            "input": [_tensor(name, type) for name, type in function.inputs.items()],
            "output": [_tensor(name, types[name]) for name in function.outputs],
            "state": [_state(name, type) for name, type in function.states.items()],
        })  # fmt: skip

    def save(self, default: str, description: str, facts: Mapping[str, object]) -> None:
        """Write what is left: the program and the manifest.

        Args:
            default: the function that is loaded where none is named.
            description: a line for people.
            facts: for a runtime, as JSON among the model's metadata.

        """
        self.blob.finish()
        metadata = {
            "shortDescription": description,
            "userDefined": {METADATA_KEY: json.dumps(facts)},
        }
        model = MESSAGES.encode(
            "Model",
            {
                "specificationVersion": SPECIFICATION,
                "description": {
                    "functions": self._described,
                    "defaultFunctionName": default,
                    "metadata": metadata,
                },
                "mlProgram": {"version": 1, "functions": self._functions},
            },
        )
        self._files[MODEL].write_bytes(model)
        # Named after what they are, so that the same export gives the same bytes.
        root, weights = (str(uuid.uuid5(uuid.NAMESPACE_URL, name)) for name in (MODEL, WEIGHTS))
        manifest = {
            "fileFormatVersion": FILE_VERSION,
            "itemInfoEntries": {
                root: _item("model.mlmodel", "CoreML Model Specification"),
                weights: _item("weights", "CoreML Model Weights"),
            },
            "rootModelIdentifier": root,
        }
        # As coremltools writes it again whenever it opens a package: the same bytes, the same hash.
        text = json.dumps(manifest, indent=4, sort_keys=True) + "\n"
        self._files[MANIFEST].write_text(text, "utf-8", newline="\n")


def _item(name: str, description: str) -> dict[str, str]:
    return {
        "author": _AUTHOR,
        "description": description,
        "name": name,
        "path": f"{_AUTHOR}/{name}",
    }


def _array(type: TensorType) -> Message:
    return {"shape": list(type.shape), "dataType": FEATURES[type.kind]}


def _tensor(name: str, type: TensorType) -> Message:
    return {"name": name, "type": {"multiArrayType": _array(type)}}


def _state(name: str, type: TensorType) -> Message:
    return {"name": name, "type": {"stateType": {"arrayType": _array(type)}}}
