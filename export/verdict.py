"""A one-word verdict on an exported model's closeness to its source."""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgedec.export.divergence import Floor

# From the exports of the pair that ships (2.2 M and 11.5 M parameters, which suffer more than
# larger models), on the built-in text. fp16 and int8: KL up to 0.0004 nats, the same best token at
# 98% of the positions or more, perplexity up to 1.002 times the source's. int4 with blocks of 32
# to 256: 0.040 to 0.081, 76% to 84%, up to 1.07 times. Good lies between the two, near the floor
# that 8 bits must keep; usable is what 4 bits reach. Exports that are neither but pass
# their format's floor are poor; those that fail it are refused.
GOOD = Floor(kl_nats=0.02, top1=0.90, perplexity_ratio=1.02)
USABLE = Floor(kl_nats=0.10, top1=0.75, perplexity_ratio=1.10)


def verdict(figures: Mapping[str, float]) -> str:
    """Return ``good``, ``usable`` or ``poor``, and the figures that prevent a better verdict.

    Args:
        figures: as ``Parity`` has them; figures that are missing or not finite give an empty text.

    """
    try:
        ratio = figures["perplexity"] / figures["perplexity_source"]
        kl_nats, top1 = figures["kl_nats"], figures["top1"]
    except (KeyError, ZeroDivisionError):
        return ""
    if not all(map(math.isfinite, (ratio, kl_nats, top1))):
        return ""
    short = _short_of(GOOD, kl_nats, top1, ratio)
    if not short:
        return "good"
    beyond = _short_of(USABLE, kl_nats, top1, ratio)
    if not beyond:
        return f"usable ({'; '.join(short)})"
    return f"poor ({'; '.join(beyond)}): more bits or smaller blocks are closer"


def _short_of(floor: Floor, kl_nats: float, top1: float, ratio: float) -> list[str]:
    """Return, in words, the figures in which an export exceeds a floor."""
    found = []
    if kl_nats > floor.kl_nats:
        found.append(f"KL {kl_nats:.2g} nats, over {floor.kl_nats:g}")
    if top1 < floor.top1:
        found.append(f"the best token is the source's at {top1:.1%}, under {floor.top1:.0%}")
    if ratio > floor.perplexity_ratio:
        found.append(f"perplexity {ratio:.2f} times the source's, over {floor.perplexity_ratio:g}")
    return found
