"""A drafter that returns what was drafted ahead, and the engine that overlaps it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from edgedec.decoding.acceptance import AcceptanceRule
from edgedec.decoding.drafting.base import (
    Drafter,
    DraftLimits,
    DraftStep,
    Evictable,
    GoOn,
    Offer,
    RoundFeedback,
)
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.engine import log_failure
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.randomness import Streams
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import Phase, Session, StreamedSession
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.errors import InputError
from edgedec.hardware.clock import Clock
from edgedec.hardware.pinning import PinnedEngine
from edgedec.overlap.contention import ContentionControl
from edgedec.overlap.lookahead import Lookahead
from edgedec.overlap.lookahead_tree import LookaheadNode

_FORGET = 0.95
# Prior of acceptance: seven of the first ten drafted tokens.
_TRUST = 7.0, 10.0
# Share of a drafted token's value that is lost by not waiting for it. Found by simulation with
# draft models of 0.05 to 0.5 of the target's time: a share of 1 costs up to a tenth of the speed, 0
# a twentieth.
_LOST = 0.3
# Consecutive rounds in which the policy declines the draft before it rests, and the rounds that it
# then rests: drafting may slow the target, and it takes power.
_GIVE_UP, _REST = 16, 48


class WaitLimit:
    """The longest wait for a drafted token that pays off.

    Waiting t seconds costs the tokens that could be emitted in that time; one more drafted token
    gains its acceptance probability. The alternative is PEARL's pre-verify: the target scores the
    draft so far, or only the root, while the draft goes on, so only a part of the gain is lost.
    """

    def __init__(self) -> None:
        self._right, self._tried = _TRUST
        self._tokens = self._seconds = 0.0

    def seconds(self, depth: int) -> float:
        """Return how long to wait for one more token after ``depth`` drafted ones, in seconds."""
        if not self._seconds:
            return 0.0
        chance = self._right / self._tried
        return _LOST * chance ** (depth + 1) * self._seconds / self._tokens

    def observe(self, feedback: RoundFeedback, seconds: float) -> None:
        """Record a round's feedback and its time in seconds."""
        self._tokens = _FORGET * self._tokens + len(feedback.kept)
        self._seconds = _FORGET * self._seconds + seconds
        accepted, drafted = feedback.verdict.accepted, feedback.draft.drafted
        if drafted:
            self._right = _FORGET * self._right + accepted
            self._tried = _FORGET * self._tried + min(accepted + 1, drafted)


class LookaheadDrafter:
    """A ``Drafter`` that returns what a draft model has drafted ahead so far.

    Args:
        ahead: the draft's thread.
        lookup: the drafter tried before the model; None for the model alone.
        on_failure: called once per request if the draft fails; the request continues without a
            draft, and the next one tries again.

    """

    def __init__(
        self,
        ahead: Lookahead,
        clock: Clock,
        *,
        name: str = ModelDrafter.name,
        lookup: Drafter | None = None,
        on_failure: Callable[[BaseException], object] = log_failure,
    ) -> None:
        self.name = name
        self.ahead = ahead
        # Ends the thread if an engine is dropped or the program ends during a request: a thread
        # inside a runtime's code at interpreter exit crashes the process.
        weakref.finalize(self, ahead.close)
        self._clock, self._lookup, self._on_failure = clock, lookup, on_failure
        self._patience, self._contention = WaitLimit(), ContentionControl()
        self._round: tuple[RoundFeedback, float] | None = None
        self._root = LookaheadNode(0)
        self._reported = False
        self._began = self._busy_s = 0.0
        self._since, self._declined = 0.0, 0
        self.reuse_hits, self.overlapped_s = 0, 0.0

    def begin(self, prompt: Sequence[int], sampler: Sampler) -> None:
        self._root, self._reported, self._declined = self.ahead.begin(sampler), False, 0
        self._since, self.reuse_hits, self.overlapped_s = self.ahead.busy_s, 0, 0.0
        if self._lookup is not None:
            self._lookup.begin(prompt, sampler)

    def propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        self._began = self._clock.now()
        self.ahead.resume()
        resting = self._declined % (_GIVE_UP + _REST) >= _GIVE_UP
        self._declined += resting
        self.ahead.rest(now=resting or self._contention.resting or limits.nodes < 1)
        draft = Draft(TokenTree(root), source=ModelDrafter.name)
        if self._lookup is not None:
            # A rival that has no draft yet does not count.
            decide = go_on if self._root.computed else _without_rivals(go_on)
            draft = self._lookup.propose(root, limits, decide, streams)
            if draft.drafted:
                self.ahead.add(self._root, draft.tree.tokens[1:])
        if self.ahead.failure is not None:
            self._report_failure(self.ahead.failure)
        elif not draft.drafted:
            draft = self._drafted_ahead(root, limits, go_on, coupled=streams.coupled)
        self._busy_s = self.ahead.busy_s
        return draft

    def observe(self, feedback: RoundFeedback) -> None:
        self.overlapped_s += self.ahead.busy_s - self._busy_s
        for token in feedback.kept:
            self._root = self._root.below(token) or LookaheadNode(token, self._root)
        self.reuse_hits += self._root.ranked is not None
        self.ahead.advance(self._root, feedback.kept)
        seconds = self._clock.now() - self._began
        self._patience.observe(feedback, seconds)
        self._round = feedback, seconds

    def weigh(self, policy: DraftPolicy) -> None:
        """Learn how much drafting ahead slowed the target in the last round, if that is known."""
        last, self._round = self._round, None
        lone_row_s, slowdown = policy.lone_row_s, policy.slowdown
        if last is None or lone_row_s is None or slowdown is None:
            return
        feedback, seconds = last
        draft = feedback.draft
        by_model = draft.drafted > 0 and draft.source == ModelDrafter.name
        self._contention.observe(
            len(feedback.kept), seconds, lone_row_s, slowdown, by_model=by_model
        )

    def report(self, metrics: Metrics) -> None:
        """Add the figures of overlapping to a request's metrics."""
        metrics.reuse_hits, metrics.overlapped_s = self.reuse_hits, self.overlapped_s
        metrics.ahead_s = self.ahead.busy_s - self._since

    def evict(self, keep: Collection[str] = ()) -> None:
        """See ``Evictable``; the draft model rests until the next text."""
        if ModelDrafter.name not in keep:
            self.ahead.evict()
        lookup: object = self._lookup
        if isinstance(lookup, Evictable):
            lookup.evict(keep)

    def close(self) -> None:
        self.ahead.close()

    def _drafted_ahead(
        self, root: int, limits: DraftLimits, go_on: GoOn, *, coupled: bool
    ) -> Draft:
        """Return the chain of most likely tokens drafted ahead, as far as available and wanted."""
        tree, node = TokenTree(root), self._root
        length = min(limits.nodes, limits.depth)
        token = (lambda: _first(node).token) if coupled else None
        offer = Offer(ModelDrafter.name, lambda: node.confidence, token)
        leaf = 0
        while (
            leaf < length and self._is_drafted(node, leaf) and go_on(DraftStep(offer, leaf, leaf))
        ):
            node = _first(node)
            leaf = tree.add(node.token, leaf)
        if leaf:
            self._declined = 0
        elif length > 0 and node.computed:
            self._declined += 1
        return Draft(tree, source=ModelDrafter.name)

    def _is_drafted(self, node: LookaheadNode, depth: int) -> bool:
        """Return whether the next token has been drafted, after waiting for it while that pays."""
        ahead, clock = self.ahead, self._clock
        give_up = clock.now() + self._patience.seconds(depth)
        while node.ranked is None:
            ahead.news.clear()
            left = give_up - clock.now()
            if node.computed or ahead.expected_s(node) >= left or not ahead.news.wait(left):
                break
        return bool(node.ranked)

    def _report_failure(self, error: BaseException) -> None:
        if not self._reported:
            self._reported = True
            self._on_failure(error)


def _without_rivals(go_on: GoOn) -> GoOn:
    return lambda step: go_on(step._replace(offer=step.offer._replace(rivals=())))


def _first(node: LookaheadNode) -> LookaheadNode:
    assert node.ranked, "not computed yet"
    return node.ranked[0]


class OverlappedEngine(PinnedEngine):
    """The engine whose draft model drafts while the target verifies; the text is the same.

    Args:
        target: scores drafts in the caller's thread.
        drafter: a ``LookaheadDrafter``, owned by this engine from now on.
        policy: decides how much of the available draft to verify.
        rule: one whose text does not depend on the drafts: ``coupling`` or ``match``.
        clock: the drafter's clock.
        cores: cores of the caller's thread while it decodes; None is any.
        apart: whether the draft has cores or a device of its own. If not, and the target's weights
            are streamed, it drafts while they load and begins no pass while they are used (LLMCad,
            2309.04255).

    Raises:
        InputError: with this rule the text depends on the drafts, and so on timing.

    """

    def __init__(
        self,
        target: Session,
        drafter: LookaheadDrafter,
        policy: DraftPolicy,
        rule: AcceptanceRule,
        clock: Clock,
        *,
        cores: Sequence[int] | None = None,
        apart: bool = True,
    ) -> None:
        if not rule.seeds_text:
            raise InputError(
                f"overlapped drafting with --accept {rule.name}: the text would depend on time;"
                " expected coupling or match"
            )
        super().__init__(target, drafter, policy, rule, clock.now, cores=cores)
        self._ahead = drafter
        shared = not apart and isinstance(target, StreamedSession)
        self._streamed = target if shared and isinstance(target, StreamedSession) else None

    @contextmanager
    def around_request(self, metrics: Metrics) -> Iterator[None]:
        if self._streamed is not None:
            self._streamed.watch(self._heed)
        try:
            yield
            self._ahead.report(metrics)
        finally:
            if self._streamed is not None:
                self._streamed.watch(None)
            self._ahead.ahead.resume()
            self._ahead.ahead.end()

    @contextmanager
    def around_round(self, metrics: Metrics) -> Iterator[None]:
        with super().around_round(metrics):
            yield
        if self._streamed is None and self._running is not None:
            self._ahead.weigh(self._running.policy or self.policy)
        self._ahead.report(metrics)

    def _heed(self, phase: Phase) -> None:
        if phase is Phase.LOAD:
            self._ahead.ahead.resume()
        else:
            self._ahead.ahead.pause()
