"""Evidence of a round about its drafters: looks taken, tokens drawn, tokens declined."""

from __future__ import annotations

from edgedec.decoding.drafting.base import DraftStep
from edgedec.decoding.policy.base import RoundRecord
from edgedec.decoding.policy.drafter_estimate import DrafterEstimate
from edgedec.decoding.policy.round_cost import CatchUpCost


class RoundEvidence:
    """Observations of a round's drafters, passed to their estimates when it is over.

    Attributes:
        asked: the drafter asked last; None before the first question.
        probing: it drafts although its estimate is bad, to check the estimate.
        best_rival: tokens that the best drafter asked after it is expected to add.
        reach: in a chain, the chance that the target reaches the next token.
        bins: confidence bins of the tokens drawn.
        looks: looks at the drafter's next token so far; ``layer`` is the depth of the last in a
            tree.
        sunk_s: seconds of looks at drafters asked before it, which draft nothing.

    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start another round."""
        self.asked: DrafterEstimate | None = None
        self.sunk_s = 0.0
        # A drafter, its drafted tokens so far, and the bin and token that it would have drawn.
        self._declined: list[tuple[DrafterEstimate, int, int, int]] = []
        self._clear()

    def ask(self, drafter: DrafterEstimate, slowdown: float) -> None:
        """Turn to another drafter; the previous one has been looked at and drafts nothing."""
        before = self.asked
        if before is not None and self.looks:
            self.sunk_s += self.looks * before.look.value * slowdown
            if before.branching:
                before.gained(-self.looks * before.look_price)
        self.asked = drafter
        self._clear()

    def decline(self, drafter: DrafterEstimate, step: DraftStep, place: int) -> None:
        """Note that the token looked at, of this bin, is not drawn."""
        token = step.offer.token
        if token is None or (drafter.branching and step.nodes):
            drafter.fade(place)
        else:
            self._declined.append((drafter, step.nodes, place, token()))

    def learn_look(self, record: RoundRecord, catch_up: CatchUpCost, slowdown: float) -> float:
        """Learn the cost of a look or of reading; return the seconds of this round's looks."""
        drafter = self.asked
        if drafter is None:
            return 0.0
        if catch_up.tokens:
            read_s = record.draft_s - self.sunk_s - self.looks * drafter.look.value * slowdown
            catch_up.took(read_s / slowdown)
        elif self.looks and not self.sunk_s:
            drafter.look.add(record.draft_s / self.looks / slowdown)
        return self.sunk_s + self.looks * drafter.look.value * slowdown

    def learn(self, record: RoundRecord) -> None:
        """Tell the estimates which tokens were right."""
        if self.asked is not None and self.bins:
            self._learn_from_drawn(self.asked, record)
        self._learn_from_declined(record)

    def _learn_from_drawn(self, drafter: DrafterEstimate, record: RoundRecord) -> None:
        path = record.path or range(record.accepted + 1)
        accepted = len(path) - 1
        if drafter.branching:
            for node, place in enumerate(self.bins, 1):
                drafter.learn(place, accepted=node in path)
        else:
            # The first rejected token is known to be wrong; later ones are not.
            for depth, place in enumerate(self.bins[: accepted + 1]):
                drafter.learn(place, accepted=depth < accepted)

    def _learn_from_declined(self, record: RoundRecord) -> None:
        """Learn from the text whether declined tokens would have been right."""
        for drafter, drafted, place, token in self._declined:
            # Only known if the text followed the tokens drafted before it.
            if record.accepted >= drafted < len(record.tokens):
                drafter.learn(place, accepted=record.tokens[drafted] == token)

    def _clear(self) -> None:
        self.reach = 1.0
        self.bins: list[int] = []
        self.looks, self.layer = 0, -1
        self.best_rival = 0.0
        self.probing = False
