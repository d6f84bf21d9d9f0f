"""A draft model drafts a chain in one pass (PARD, 2504.18583).

It reads masks where tokens are not known yet, and predicts the token after each. Only a model that
was trained for it can do so; its checkpoint names the mask's token.
"""

from __future__ import annotations

from edgedec.decoding.drafting._context import Context
from edgedec.decoding.drafting.base import Drafter, DrafterInfo, DrafterParts
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.errors import InputError


class ParallelDrafter(ModelDrafter):
    """Draws the tokens of a chain from the rows of one draft pass, through the target's sampler.

    Row i has seen the text and i masks, not the tokens drawn before it, so that later tokens are
    accepted less often than those of ``ModelDrafter``, and cost next to nothing.

    Args:
        parts: with a draft model and its mask.
        context: as for ``ModelDrafter``.

    Raises:
        InputError: the draft model has no mask, or another vocabulary.

    """

    name = "parallel"
    at_once = True
    # Models are trained to draft eight tokens in a pass (section 4.1 there).
    most = 8

    def __init__(self, parts: DrafterParts, context: Context | None = None) -> None:
        super().__init__(parts, context)
        if parts.mask is None:
            raise InputError(
                f"drafter {self.name!r} needs a draft model that was trained to draft several"
                " tokens in a pass, with pard_token in its config.json: give one, or use 'model'"
            )
        if parts.translation is not None and not parts.translation.untouched:
            raise InputError(
                f"drafter {self.name!r} needs a draft model with the target's tokenizer: give one,"
                " or use 'model'"
            )
        self._mask = parts.mask

    def _masks(self, length: int) -> list[int]:
        return [self._mask] * (length - 1)


# Plans choose ``hybrid``, which drafts in this way with such a model.
INFO = DrafterInfo(needs_model=True, needs_mask=True, planned=False)


def build(parts: DrafterParts) -> Drafter:
    """See ``drafting.create``."""
    return ParallelDrafter(parts)
