"""For anyone who writes a runtime: a fake model, and the contract every session passes.

::

    class TestMyRuntime(SessionContract):
        @pytest.fixture
        def model(self):
            return MyModel(...)
"""

from edgedec.testing.contract import SessionContract
from edgedec.testing.fake import FakeModel, FakeSession

__all__ = ["FakeModel", "FakeSession", "SessionContract"]
