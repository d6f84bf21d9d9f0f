"""The session contract, as tests that any runtime inherits."""

from __future__ import annotations

from edgedec.testing._committing import Committing
from edgedec.testing._misuse import Misuse
from edgedec.testing._reading import Reading
from edgedec.testing._saving import Saving
from edgedec.testing._threads import Threads


class SessionContract(Reading, Committing, Saving, Misuse, Threads):
    """Base class of a runtime's tests: give a ``model`` fixture and the runtime's ``tolerance``."""
