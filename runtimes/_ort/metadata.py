"""Reads an exporter's facts from a graph's metadata, with checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgedec.errors import BundleError

METADATA_KEY = "edgedec"


def parse(metadata: Mapping[str, str], where: str, version: int) -> dict[str, Any]:
    """Return the exporter's facts.

    Args:
        metadata: the file's metadata.
        where: the file, for messages.
        version: the graph version that this edgedec reads.

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
    if stated != version:
        raise BundleError(
            f"{where}: graph version {stated!r}, this edgedec reads {version}: "
            "upgrade edgedec or export it again"
        )
    return found


def damaged(where: str) -> BundleError:
    """Return the error for facts that are missing or invalid."""
    return BundleError(f"{where}: its metadata is damaged: export it again")


def positive(value: object) -> int:
    """Return a positive count, or raise ValueError."""
    if type(value) is not int or value < 1:
        raise ValueError(value)
    return value
