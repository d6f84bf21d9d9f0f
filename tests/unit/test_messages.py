"""Every error that any test meets has a message of one line (``every_message_is_one_line``)."""

from __future__ import annotations

from edgedec.errors import CannotRollback, InputError, PromptTooLong


def test_others_are_seen(longer_messages: list[str]) -> None:
    """The control."""
    for error in (InputError("one line"), PromptTooLong("two\nlines"), CannotRollback("a\nb", 3)):
        assert str(error)
    assert longer_messages == ["two\nlines", "a\nb"]
    longer_messages.clear()
