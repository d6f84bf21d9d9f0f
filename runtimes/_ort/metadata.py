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
        metadata: of the file.
        where: the file, for messages.
        version: of the graph style that is read here.

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
    """Return the error for facts that are missing or make no sense."""
    return BundleError(f"{where}: its metadata is damaged: export it again")


def positive(value: object) -> int:
    """Return a positive count, or raise ValueError."""
    if type(value) is not int or value < 1:
        raise ValueError(value)
    return value
