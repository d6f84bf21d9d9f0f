"""The simple policy: fixed lengths."""

from __future__ import annotations

import pytest

from edgedec.decoding.drafting.base import DraftStep, Offer
from edgedec.decoding.policy import Fixed
from edgedec.errors import InputError


def test_fixed_lengths() -> None:
    assert (Fixed(4).limits().nodes, Fixed(4).limits().depth) == (4, 4)
    assert (Fixed(8, 3).limits().nodes, Fixed(8, 3).limits().depth) == (8, 3)
    assert Fixed(0).limits().nodes == 0
    assert Fixed(2).go_on(DraftStep(Offer("draft", lambda: 0.0)))
    for bad in ((-1, None), (3, 0)):
        with pytest.raises(InputError):
            Fixed(*bad)
