"""Draft while the target verifies (PEARL, 2408.11850; Mirror-SD, 2510.13161).

With the Gumbel coupling any verified tree gives plain decoding's text, so to overlap is only a
question of when a draft is there. The loop stays the engine's (``engine``): its drafter hands
out what a second thread (``worker``, ``ahead``) has thought of so far (``thicket``, of ``twig``s),
and the target's pass runs while that thread goes on below what is being verified::

    clock = WallClock()
    ahead = Ahead(DrafterParts(vocab_size, draft_session), clock, cores=(1,))
    drafter = AheadDrafter(ahead, clock, lookup=LookupDrafter(vocab_size, rivals=("model",)))
    engine = OverlappedEngine(target_session, drafter, policy, acceptance.rule(), clock, cores=(0,))
    ...
    engine.close()  # before the sessions are: ends the draft's thread
"""

from edgedec.overlap.engine import AheadDrafter, OverlappedEngine, Patience
from edgedec.overlap.lookahead import Ahead

__all__ = ["Ahead", "AheadDrafter", "OverlappedEngine", "Patience"]
