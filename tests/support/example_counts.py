"""How many examples a property is tried on: fewer in `make test` than in the full run."""

from hypothesis import settings


def examples(count: int) -> int:
    """Return ``count`` in the full profile, whose default is 100, and its share in others.

    No fewer than five, unless ``count`` is.
    """
    return min(count, max(5, count * settings.default.max_examples // 100))
