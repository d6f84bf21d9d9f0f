"""The user's library of models: made from checkpoints or fetched from a hub, found by name."""

from edgedec.library.records import Form, Model
from edgedec.library.store import Library

__all__ = ["Form", "Library", "Model"]
