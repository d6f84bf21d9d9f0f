"""A model at a place, with a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgedec.decoding.session import Model, Session
from edgedec.hardware.pinning import pinned
from edgedec.records.place import Place
from edgedec.runtimes import registry


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded model and an empty session of it."""

    model: Model
    session: Session


@contextmanager
def opened(path: Path, place: Place, capacity: int, row_invariant: bool | None) -> Iterator[Opened]:
    """Load a model there and open a session; both are closed again.

    Args:
        path: the model's main file.
        place: where.
        capacity: tokens of the session, as far as the model's own context reaches.
        row_invariant: see ``LoadOptions``.

    """
    with pinned(place.cores):
        options = place.load_options(row_invariant=row_invariant)
        model = registry.load(place.format, path, options)
    try:
        session = model.open(min(capacity, model.info.max_context))
        try:
            yield Opened(model, session)
        finally:
            session.close()
    finally:
        model.close()
