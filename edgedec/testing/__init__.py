"""Helpers to test a runtime: a fake model, a paced one, and the session contract.

::

    class TestMyRuntime(SessionContract):
        @pytest.fixture
        def model(self):
            return MyModel(...)

``ConstraintContract`` is what a grammar passes.
"""

from edgedec.testing._constraining import ConstraintContract
from edgedec.testing.constraint import TableConstraint
from edgedec.testing.contract import SessionContract
from edgedec.testing.fake import FakeModel, FakeSession
from edgedec.testing.paced import PacedModel, PacedSession

__all__ = [
    "ConstraintContract",
    "FakeModel",
    "FakeSession",
    "PacedModel",
    "PacedSession",
    "SessionContract",
    "TableConstraint",
]
