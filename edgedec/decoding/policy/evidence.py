"""Evidence of a round about its drafters: peeks taken, tokens drawn, tokens declined."""

from __future__ import annotations

from edgedec.decoding.drafting.base import DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.drafter_estimate import Bin, DrafterEstimate
from edgedec.decoding.policy.round_cost import CatchUpCost


class RoundEvidence:
    """Observations of a round's drafters, passed to their estimates when it is over.

    Attributes:
        queried: the drafter queried last; None before the first query.
        probing: it drafts although its estimate is bad, to check the estimate.
        best_rival: tokens that the best drafter queried after it is expected to add.
        reach: in a chain, the chance that the target reaches the next token.
        bins: confidence bins of the tokens drawn.
        peeks: peeks at the drafter's next token so far; ``layer`` is the depth of the last in a
            tree.
        sunk_s: seconds of peeks at drafters queried before it, which draft nothing.

    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start another round."""
        self.queried: DrafterEstimate | None = None
        self.sunk_s = 0.0
        # A drafter, its drafted tokens so far, and the bin and token that it would have drawn.
        self._declined: list[tuple[DrafterEstimate, int, Bin, int]] = []
        self._clear()

    def query(self, drafter: DrafterEstimate, slowdown: float) -> None:
        """Turn to another drafter; if the previous one was peeked at, it drafts nothing."""
        before = self.queried
        if before is not None:
            if self.peeks:
                self.sunk_s += self.peeks * before.peek_s.value * slowdown
                if before.branching:
                    before.learn_gain(-self.peeks * before.peek_tokens)
            self._clear()
        self.queried = drafter

    def decline(self, drafter: DrafterEstimate, step: DraftStep, bin_: Bin) -> None:
        """Note that the token peeked at, of this bin, is not drawn."""
        token = step.offer.token
        if token is None or (drafter.branching and step.nodes):
            drafter.fade(bin_)
        else:
            self._declined.append((drafter, step.nodes, bin_, token()))

    def learn(self, record: RoundRecord, catch_up: CatchUpCost, slowdown: float) -> float:
        """Tell the estimates which tokens were right and what peeks, or catching up, took.

        Returns:
            The usual seconds of this round's peeks.

        """
        drafter = self.queried
        if drafter is None:
            return 0.0
        if self.bins:
            self._learn_from_drawn(drafter, record)
        if self._declined:
            self._learn_from_declined(record)
        peeks_s = self.sunk_s + self.peeks * drafter.peek_s.value * slowdown
        if catch_up.tokens:
            catch_up.took((record.draft_s - peeks_s) / slowdown)
        elif self.peeks and not self.sunk_s:
            drafter.peek_s.add(record.draft_s / self.peeks / slowdown)
            return self.peeks * drafter.peek_s.value * slowdown
        return peeks_s

    def _learn_from_drawn(self, drafter: DrafterEstimate, record: RoundRecord) -> None:
        path = record.path or range(record.accepted + 1)
        accepted = len(path) - 1
        if drafter.branching:
            for node, bin_ in enumerate(self.bins, 1):
                drafter.learn(bin_, accepted=node in path)
        else:
            # The first rejected token is known to be wrong; later ones are not.
            for depth, bin_ in enumerate(self.bins[: accepted + 1]):
                drafter.learn(bin_, accepted=depth < accepted)

    def _learn_from_declined(self, record: RoundRecord) -> None:
        """Learn from the text whether declined tokens would have been right."""
        for drafter, drafted, bin_, token in self._declined:
            # Only known if the text followed the tokens drafted before it.
            if record.accepted >= drafted < len(record.tokens):
                drafter.learn(bin_, accepted=record.tokens[drafted] == token)

    def _clear(self) -> None:
        self.reach = 1.0
        self.bins: list[Bin] = []
        self.peeks, self.layer = 0, -1
        self.best_rival = 0.0
        self.probing = False
