"""The simple policies: fixed lengths and SVIP's entropy bound."""

from __future__ import annotations

import math

import pytest
from drafting_table import HOT, Table

from edgedec.decoding.drafting.base import DraftStep, Offer
from edgedec.decoding.policy import Fixed, Svip
from edgedec.errors import InputError


def step(nodes: int, entropy: float) -> DraftStep:
    return DraftStep(Offer("draft", lambda: 0.5, lambda: entropy), nodes, nodes)


def test_fixed_lengths() -> None:
    assert (Fixed(4).limits().nodes, Fixed(4).limits().depth) == (4, 4)
    assert (Fixed(8, 3).limits().nodes, Fixed(8, 3).limits().depth) == (8, 3)
    assert Fixed(0).limits().nodes == 0
    assert Fixed(2).go_on(step(0, 9.0))
    for bad in ((-1, None), (3, 0)):
        with pytest.raises(InputError):
            Fixed(*bad)


def test_svip_stops_after_a_token_above_the_bound() -> None:
    # sqrt(0.15 H) = 0.3 at H = 0.6 nats.
    policy = Svip()
    assert policy.limits().nodes == 40
    for entropy, more in ((0.59, True), (0.61, False)):
        assert policy.go_on(step(0, entropy))
        assert policy.go_on(step(1, 0.0)) is more
    # The token drawn from the unsure distribution is kept; a new round starts afresh.
    assert policy.go_on(step(0, 5.0))
    assert not policy.go_on(step(1, 0.0))
    assert policy.go_on(step(0, 0.0))


def test_svip_bounds_what_a_real_draft_is_unsure_of() -> None:
    # Sure of most tokens, so that most drafts are several tokens long.
    table, policy = Table("model", HOT, sharpness=10.0), Svip()
    lengths = []
    for _ in range(40):
        draft = table.propose(40, 40, policy.go_on)
        history, tree = table.sampler.history, draft.tree
        entropies = []
        for node in range(draft.drafted):
            logits = table.draft.logits(history + tree.tokens[1 : node + 1]).astype(float)
            logits -= logits.max()
            p = [math.exp(x) / sum(math.exp(y) for y in logits) for x in logits]
            entropies.append(-sum(x * math.log(x) for x in p))
        assert all(math.sqrt(0.15 * h) <= 0.3 for h in entropies[:-1])
        assert draft.drafted == 40 or math.sqrt(0.15 * entropies[-1]) > 0.3
        # Stopping takes no further pass.
        assert draft.passes == draft.drafted
        lengths.append(draft.drafted)
        table.settle(draft)
    assert min(lengths) == 1
    assert sum(length >= 3 for length in lengths) >= 15
