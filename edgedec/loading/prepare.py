"""Writes files that make a pair of models load faster on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgedec.loading.build import find_pair
from edgedec.loading.options import OpenOptions
from edgedec.records.adapter import Prepared
from edgedec.runtimes import registry


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """The outcome for one model of a pair."""

    role: str
    format: str
    prepared: Prepared


def prepare(where: str | Path, options: OpenOptions | None = None) -> list[PreparedModel]:
    """Prepare the models that a pipeline would load from here.

    Raises:
        BundleError, InputError: as ``assemble`` raises them.
        RuntimeUnavailable: the files cannot be stored here.

    """
    pair = find_pair(where, options or OpenOptions())
    found = []
    for source in (pair.target, pair.draft):
        if source is not None:
            source.admit()
            done = registry.prepare(source.format, source.path)
            done = done or Prepared("its runtime has nothing to prepare", 0, 0.0)
            found.append(PreparedModel(source.role, source.format, done))
    return found
