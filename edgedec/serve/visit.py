"""One request's use of a model, from its arrival until its texts wait for their turns."""

from __future__ import annotations

from typing import Any, Protocol

from edgedec.errors import InputError
from edgedec.serve import keeping
from edgedec.serve.entry import Entry
from edgedec.serve.errors import ApiError
from edgedec.serve.model import Served


class NotLoaded(Exception):
    """The model that a request asks for is not loaded, or is about to be dropped."""


class Admitting(Protocol):
    """Finds models, and gives them to requests."""

    def find(self, name: str) -> Entry:
        """Return the model of a name; ApiError if there is none."""

    def admit(self, visit: Visit) -> None:
        """Give a request its model if that is loaded; ApiError if the server ends."""

    def keep(self, entry: Entry, keep_s: float | None) -> None:
        """Note that a request uses a model, and for how long that is to stay loaded then."""


class Visit:
    """One request's use of a model.

    Args:
        models: of the server.
        came: whether it came before the server drained, so that it is decoded.

    Attributes:
        entry: the model that it asks for; None before that is known.
        served: it once it is loaded: it stays so until the request leaves.
        waited_s: seconds for which it waited for that.

    """

    def __init__(self, models: Admitting, *, came: bool) -> None:
        self._models, self.came = models, came
        self.entry: Entry | None = None
        self.served: Served | None = None
        self.waited_s = 0.0

    def take(self, name: str, keep_s: float | None = None) -> Served:
        """Return the model of this name; any thread may call.

        Args:
            name: which the request gives; "" if it gives none.
            keep_s: for how long it asks to keep the model; None if it does not say.

        Raises:
            NotLoaded: it is to be waited for first.
            ApiError: there is none of this name, or the server ends.

        """
        if self.served is None:
            self.entry = self._models.find(name)
            self._models.admit(self)
        assert self.entry is not None
        if self.served is None:
            raise NotLoaded
        self._models.keep(self.entry, keep_s)
        return self.served


def name_of(fields: dict[str, Any]) -> str:
    """Return the model that a request names; "" if none. ApiError if that is no name."""
    name = fields.get("model") or ""
    if not isinstance(name, str):
        raise ApiError(400, "model: expected a name", param="model")
    return name


def keep_of(fields: dict[str, Any]) -> float | None:
    """Remove ``keep_alive`` from a request and return it in seconds; None if it does not say.

    Raises:
        ApiError: it is not as expected.

    """
    given = fields.pop("keep_alive", None)
    try:
        return None if given in (None, "") else keeping.seconds(given)
    except InputError as error:
        raise ApiError(400, str(error), param="keep_alive") from None
