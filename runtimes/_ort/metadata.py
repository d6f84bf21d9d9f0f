"""Reads an exporter's facts from a graph's metadata, with checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgedec.bundle.onnx_file import read_model_file
from edgedec.errors import BundleError
from edgedec.records.adapter import SIZES

METADATA_KEY = "edgedec"


def parse(metadata: Mapping[str, str], where: str, version: int) -> dict[str, Any]:
    """Return the exporter's facts.

    Args:
        where: the file, for messages.
        version: the newest graph version that this edgedec reads.

    Raises:
        BundleError: not written by this exporter, or by a newer one.

    """
    text = metadata.get(METADATA_KEY)
    if text is None:
        raise BundleError(f"{where}: not exported by edgedec: use `edgedec export`")
    try:
        found: dict[str, Any] = json.loads(text)
        stated = found["graph_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(where) from error
    if type(stated) is not int or not 1 <= stated <= version:
        raise BundleError(
            f"{where}: graph version {stated!r}, this edgedec reads {version}: "
            "upgrade edgedec or export it again"
        )
    return found


def sizes(path: Path) -> dict[str, int]:
    """See ``edgedec.runtimes.registry.Adapter``; empty if the metadata is not the exporter's."""
    try:
        found = json.loads(read_model_file(path).metadata[METADATA_KEY])
        return {name: found[name] for name in SIZES if type(found.get(name)) is int}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}  # loading refuses it


def damaged(where: str) -> BundleError:
    """Return the error for facts that are missing or invalid."""
    return BundleError(f"{where}: its metadata is damaged: export it again")


def positive(value: object) -> int:
    """Return a positive count, or raise ValueError."""
    if type(value) is not int or value < 1:
        raise ValueError(value)
    return value


def natural(value: object) -> int:
    """Return a count or an index from 0, or raise ValueError."""
    return 0 if value == 0 and type(value) is int else positive(value)
