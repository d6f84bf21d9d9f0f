"""The part of a text that a draft model sees if the text is longer than its view."""

from __future__ import annotations

from collections.abc import Sequence

# First tokens that are kept: attention rests on them wherever the text is (2309.17453, 3.1).
SINKS = 4
# A session that holds fewer tokens is too small to leave any out.
_LEAST = 32


class View:
    """The first tokens and the last ones (StreamingLLM, 2309.17453), once the text is too long.

    The last ones grow until the view is full; then half of it is left, and read again, since
    positions are those in the view. That is one token read for each token of text, many at a time,
    which costs far less than the passes that draft. The target sees the whole text, so only the
    acceptance can suffer.

    Args:
        size: most tokens seen, at most what the draft's session holds.

    Attributes:
        size: as given; may change, before ``slide`` or ``show``.
        left_out: tokens of the text that are not seen, after the first ones.

    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.left_out = 0

    def of(self, text: Sequence[int]) -> Sequence[int]:
        """Return the part of a text that is seen."""
        if not self.left_out:
            return text
        return [*text[:SINKS], *text[SINKS + self.left_out :]]

    def length(self, text: Sequence[int]) -> int:
        """Return the number of tokens that are seen."""
        return len(text) - self.left_out

    def goes_on(self, text: Sequence[int]) -> bool:
        """Return whether a text, perhaps another one, is longer than what is left out."""
        return len(text) > SINKS + self.left_out

    def slide(self, text: Sequence[int]) -> int | None:
        """Leave out more of the text; return how many first tokens stay computed.

        None if the view is too small for that.
        """
        if self.size < _LEAST:
            return None
        return self.show(text, self.size // 2)

    def show(self, text: Sequence[int], last: int) -> int | None:
        """Leave out what lies before this many last tokens; return as ``slide``.

        None also if nothing was left out and nothing is.
        """
        before, self.left_out = self.left_out, max(0, len(text) - SINKS - last)
        return SINKS if before or self.left_out else None
