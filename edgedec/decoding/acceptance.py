"""Acceptance rules: which drafted tokens the target keeps.

A rule is pure: it reads the rows it visits and the random streams, nothing else. With a lossless
rule the text has the target's own distribution, whatever was drafted:

- ``coupling`` (the default) and ``match`` give exactly plain decoding's text for a seed, provided
  that the target's logits do not depend on how many tokens a pass computes. Greedy decoding runs
  the same code without noise.
- ``speculative`` gives the distribution, and the same text for a seed only if drafts have the same
  lengths. It accepts slightly more than ``coupling``.

To add a rule, write its class and list it in ``RULES``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import Rows
from edgedec.decoding.session import Want
from edgedec.decoding.tree import Draft, FloatArray
from edgedec.errors import InputError


class Verdict(NamedTuple):
    """A rule's decision.

    Attributes:
        path: nodes that are kept, root first; ``len(path) - 1`` drafted tokens are accepted.
        next_token: the token after them: the bonus token if the path ends at a leaf, the recovered
            token otherwise.

    """

    path: list[int]
    next_token: int

    @property
    def accepted(self) -> int:
        """Number of accepted drafted tokens."""
        return len(self.path) - 1


class AcceptanceRule(Protocol):
    """Walks down the tree and decides.

    Attributes:
        name: for reports and the command line.
        lossless: the text has the target's own distribution.
        seeds_text: a seed gives plain decoding's text, sampled as well as greedy, whatever is
            drafted, if the target's logits do not depend on how many tokens a pass computes.
        pads: a large target's passes are padded by default, so that this holds at near-ties, too.
        coupled: the draft must draw with the target's noise (see ``Streams``).
        want: outputs of a pass that it needs in addition to the sampler's.

    """

    name: str
    lossless: bool
    seeds_text: bool
    pads: bool
    coupled: bool
    want: Want

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        """Return the accepted path and the token after it."""
        ...


class GumbelCoupling:
    """Draws what plain decoding would draw, and continues while the draft contains it.

    The draft draws from its own distribution with the target's noise, keyed by position, so both
    often draw the same token (drafter-invariant speculative decoding, 2408.07978). Greedy decoding
    is the case without noise: keep a child that is the argmax.
    """

    name = "coupling"
    lossless = True
    seeds_text = True
    pads = True
    coupled = True
    want = Want.TOP

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        tree, path = draft.tree, [0]
        while True:
            token = rows.draw(path[-1])
            child = tree.child(path[-1], token)
            if child is None:
                return Verdict(path, token)
            path.append(child)


class SampleAndMatch(GumbelCoupling):
    """The walk of ``GumbelCoupling`` for a draft that samples with independent noise, or none.

    It is lossless for any tree, and no draft distribution has to cross devices. For a seed the text
    is plain decoding's, as with ``coupling``, but a sampled draft matches it less often. Then few
    rounds draft, and padding makes every plain round slower.
    """

    name = "match"
    pads = False
    coupled = False


class SpeculativeSampling:
    """Accepts a child with probability min(1, p/q), else continues with the residual of p.

    On a chain this is speculative sampling (2211.17192, algorithm 1). With several children it is
    recursive rejection without replacement (RSD, 2402.14160; Sequoia, 2402.12374): child j was
    drawn from q without its earlier siblings. A child that was not drawn at random (no q at its
    node, or no probability left in q) was certain to be proposed: its q is a point mass.
    """

    name = "speculative"
    lossless = True
    seeds_text = False
    pads = False
    coupled = False
    want = Want.TOP

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        tree, path = draft.tree, [0]
        while True:
            node = path[-1]
            children = tree.children(node)
            if not children:
                return Verdict(path, rows.draw(node))
            residual = Residual(rows.probs(node), draft.q.get(node))
            position = rows.position(node)
            for j, child in enumerate(children):
                chance = residual.chance(tree.tokens[child])
                if streams.uniform(position, Purpose.ACCEPT, j) < chance:
                    path.append(child)
                    break
                residual.reject(tree.tokens[child])
            else:
                return Verdict(path, residual.draw(streams.uniform(position, Purpose.RECOVER)))


class Residual:
    """The residual distributions p and q at a node while its children are rejected one by one.

    Args:
        p: the target's distribution, ``[vocab]``.
        q: the draft's, or None if nothing was drawn.

    """

    def __init__(self, p: FloatArray, q: FloatArray | None) -> None:
        self._p = p
        self._p_mass = 1.0
        self._q = q
        self._q_mass = 1.0

    def chance(self, token: int) -> float:
        """Return the probability of accepting the next child, min(1, p/q); may exceed 1."""
        p, q = float(self._p[token]) / self._p_mass, self._drawn_from(token)
        return p if q is None else p * self._q_mass / float(q[token])

    def reject(self, token: int) -> None:
        """Reject a child: p becomes max(p - q, 0), and q loses the child."""
        q = self._drawn_from(token)
        if q is None:
            p = self._p.copy()
            p[token] = 0
        else:
            p = self._p / np.float32(self._p_mass)
            p -= q / np.float32(self._q_mass)
            np.maximum(p, 0, out=p)
            self._q = q.copy()
            self._q[token] = 0
            self._q_mass = float(self._q.sum())
        mass = float(p.sum())
        # If p = q up to rounding, nothing is left, and nothing needed to be rejected.
        if mass > 0:
            self._p, self._p_mass = p, mass

    def draw(self, uniform: float) -> int:
        """Return a token drawn from the residual of p by a number in (0, 1)."""
        sums = np.cumsum(self._p, dtype=np.float64)
        token = int(np.searchsorted(sums, uniform * sums[-1], side="right"))
        return min(token, len(sums) - 1)

    def _drawn_from(self, token: int) -> FloatArray | None:
        """Return the distribution the child was drawn from; None if it was not drawn at random."""
        q = self._q
        return None if q is None or self._q_mass <= 0 or q[token] <= 0 else q


class BigLittle:
    """BiLD's rollback (2302.07863). Changes the distribution.

    Accepts a token while -log p of it, by the target's own logits, stays within a
    threshold. (BiLD's other half, to stop drafting where q is unsure, is a draft policy.)

    Args:
        threshold: in nats; the paper uses 2 to 5.

    """

    name = "bild"
    lossless = False
    seeds_text = False
    pads = False
    coupled = False
    want = Want.LOGITS

    def __init__(self, threshold: float = 2.0) -> None:
        self._threshold = threshold

    def accept(self, draft: Draft, rows: Rows, streams: Streams) -> Verdict:
        """Keep the longest path of accepted tokens; among equals, the most likely one."""
        tree, scores, best = draft.tree, {0: 0.0}, 0
        for node in range(1, len(tree)):
            parent, token = tree.parents[node], tree.tokens[node]
            if parent not in scores or not rows.permits(parent, token):
                continue
            logprob = rows.logprob(parent, token)
            if -logprob > self._threshold:
                continue
            scores[node] = scores[parent] + logprob
            if (tree.depths[node], scores[node]) > (tree.depths[best], scores[best]):
                best = node
        path = tree.path_to(best)
        return Verdict(path, rows.draw(path[-1]))


RULES: dict[str, type[AcceptanceRule]] = {
    rule.name: rule for rule in (GumbelCoupling, SampleAndMatch, SpeculativeSampling, BigLittle)
}


# Rules of former releases, and what to do without them.
_REMOVED = {
    "typical": "no measurement showed a gain: use coupling, or bild, which changes the text as well"
}


def rule(name: str = GumbelCoupling.name) -> AcceptanceRule:
    """Return a rule by its name, or raise InputError."""
    found = RULES.get(name)
    if found is None:
        if why := _REMOVED.get(name):
            raise InputError(f"acceptance rule '{name}' was removed, since {why}")
        raise InputError(f"no acceptance rule '{name}': expected {', '.join(RULES)}")
    return found()
