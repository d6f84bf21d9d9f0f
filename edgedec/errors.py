"""All errors that edgedec raises on purpose.

::

    EdgedecError                    one clear line: what was expected, what to do
    ├── InputError                  a prompt, option or file given by the user
    │   └── PromptTooLong           needs more context than the session has
    ├── BundleError                 missing, altered or newer than this version
    ├── ExportError
    │   ├── CheckpointError         the source folder or its tensors
    │   ├── UnsupportedArchitecture no spec for this model_type
    │   └── ParityError             the exported model strays from its source
    ├── RuntimeUnavailable          a runtime, provider or extra is not there
    │   └── ExtraMissing            packages that an extra brings
    ├── MemoryBudgetError           the budget cannot hold what was asked
    ├── PlacementError
    │   ├── ProfileError            measurements that are damaged, or of something else
    │   └── PlanError               a plan that is damaged, or of another machine
    └── SessionError
        ├── StateError              a call out of order: says expected and got
        ├── CapacityExceeded        the cache is full
        ├── CannotRollback          names the nearest possible length
        ├── SnapshotError           a saved state is damaged, or of another model
        ├── PassFailed              a device or provider failed in the middle of its work
        └── Interrupted             ``interrupt()`` was called; the session stays usable

The command line prints ``str(error)`` and exits with ``error.exit_code``.
"""

from __future__ import annotations


class EdgedecError(Exception):
    """Base of all errors raised on purpose; the message is one line for the user."""

    exit_code = 2


class InputError(EdgedecError):
    """The user gave something that cannot be used."""


class PromptTooLong(InputError):
    """The prompt and what should follow do not fit the context."""


class BundleError(EdgedecError):
    """A bundle is missing, altered, or written by a newer version."""


class ExportError(EdgedecError):
    """An export cannot be done or did not reach its floor."""


class CheckpointError(ExportError):
    """The checkpoint folder, its configuration or its tensors are not as expected."""


class UnsupportedArchitecture(ExportError):
    """The checkpoint's model_type has no file in ``edgedec.models``."""


class ParityError(ExportError):
    """The exported model strays further from its source than the floor allows."""

    exit_code = 1


class RuntimeUnavailable(EdgedecError):
    """A runtime, a provider or an optional package is not available here."""


class ExtraMissing(RuntimeUnavailable):
    """Optional packages are not installed; the message says which, and how to install them."""


class MemoryBudgetError(EdgedecError):
    """The request does not fit in the given memory."""


class PlacementError(EdgedecError):
    """The placement of models could not be measured or decided."""


class ProfileError(PlacementError):
    """Stored measurements are damaged, or of another machine, bundle or version."""


class PlanError(PlacementError):
    """A plan is damaged, or of another machine or bundle."""


class SessionError(EdgedecError):
    """A session was used in a way it cannot serve; it stays usable."""


class StateError(SessionError):
    """A call out of order."""


class CapacityExceeded(SessionError):
    """The cache has no room for these tokens."""


class CannotRollback(SessionError):
    """The runtime cannot go back to this length.

    Attributes:
        nearest: the closest length it can go back to.
    """

    def __init__(self, message: str, nearest: int) -> None:
        super().__init__(message)
        self.nearest = nearest


class SnapshotError(SessionError):
    """A saved state cannot be loaded: damaged, or not of this model; nothing has changed."""


class PassFailed(SessionError):
    """The device or provider could not compute a pass; another place may continue."""


class DraftFailed(SessionError):
    """The logits of a draft model or a head contain NaN; decoding continues without drafts."""


class Interrupted(SessionError):
    """``interrupt()`` was called from another thread."""

    exit_code = 130
