"""A clock in virtual time for tests of code that waits."""

from tests.virtual_time.clock import VirtualClock

__all__ = ["VirtualClock"]
