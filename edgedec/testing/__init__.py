"""Helpers to test a runtime: a fake model, a paced one, and the session contract.

::

    class TestMyRuntime(SessionContract):
        @pytest.fixture
        def model(self):
            return MyModel(...)
"""

from edgedec.testing.contract import SessionContract
from edgedec.testing.fake import FakeModel, FakeSession
from edgedec.testing.paced import PacedModel, PacedSession

__all__ = ["FakeModel", "FakeSession", "PacedModel", "PacedSession", "SessionContract"]
