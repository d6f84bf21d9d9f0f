"""A model loaded at a place, with a session."""

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
def opened(
    path: Path, place: Place, capacity: int, batch_invariant: bool | None
) -> Iterator[Opened]:
    """Load a model at a place and open a session; close both at the end.

    Args:
        path: the model's main file.
        place: where to run it.
        capacity: of the session in tokens, limited by the model's own context.
        batch_invariant: see ``LoadOptions``.

    """
    with pinned(place.cores):
        options = place.load_options(batch_invariant=batch_invariant)
        model = registry.load(place.format, path, options)
    try:
        session = model.open(min(capacity, model.info.max_context))
        try:
            yield Opened(model, session)
        finally:
            session.close()
    finally:
        model.close()
