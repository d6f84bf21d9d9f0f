"""Draft while the target verifies (PEARL, 2408.11850; Mirror-SD, 2510.13161).

With the Gumbel coupling any verified tree gives plain decoding's text, so to overlap is only a
question of when a draft is there. The loop stays the engine's (``engine``): its drafter hands
out what a second thread (``worker``, ``lookahead``) has drafted so far (``lookahead_tree``),
and the target's pass runs while that thread goes on below what is being verified.
``edgedec.loading.engine`` puts the parts together.
"""

from edgedec.overlap.engine import LookaheadDrafter, OverlappedEngine, WaitLimit
from edgedec.overlap.lookahead import Lookahead

__all__ = ["Lookahead", "LookaheadDrafter", "OverlappedEngine", "WaitLimit"]
