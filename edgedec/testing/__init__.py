"""Helpers to test a runtime: a fake model, a paced one, and the session contract.

::

    class TestMyRuntime(SessionContract):
        @pytest.fixture
        def model(self):
            return MyModel(...)

``ConstraintContract`` is the contract that a grammar passes.
"""

from edgedec.testing._committing import Committing
from edgedec.testing._constraining import ConstraintContract
from edgedec.testing._misuse import Misuse
from edgedec.testing._prefill import Prefill
from edgedec.testing._saving import Saving
from edgedec.testing._states import States
from edgedec.testing._threads import Threads
from edgedec.testing._walking import Walking
from edgedec.testing.constraint import TableConstraint
from edgedec.testing.fake import FakeModel, FakeSession, TappedFakeModel
from edgedec.testing.hybrid import HybridFakeModel, HybridFakeSession
from edgedec.testing.paced import PacedModel, PacedSession

__all__ = [
    "ConstraintContract",
    "FakeModel",
    "FakeSession",
    "HybridFakeModel",
    "HybridFakeSession",
    "PacedModel",
    "PacedSession",
    "SessionContract",
    "TableConstraint",
    "TappedFakeModel",
]


class SessionContract(Prefill, Committing, Walking, States, Saving, Misuse, Threads):
    """Base class of a runtime's tests: give a ``model`` fixture and the runtime's ``tolerance``."""
