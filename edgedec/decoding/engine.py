"""The only decoding loop: propose, forward, accept, cut, commit. Plain decoding runs it, too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter

from edgedec._support.fields import printable
from edgedec.decoding.acceptance import AcceptanceRule, Verdict
from edgedec.decoding.drafting.base import (
    Drafter,
    DraftLimits,
    GoOn,
    ReadsStates,
    RoundFeedback,
)
from edgedec.decoding.emission import Emission
from edgedec.decoding.metrics import Metrics, RoundLog
from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.prefill import in_turns, prefill
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Rows
from edgedec.decoding.session import OnStates, Pass, Session, Tapped, Want
from edgedec.decoding.session_pool import PooledSession, SessionPool
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import Draft, TokenTree
from edgedec.errors import (
    DraftFailed,
    EdgedecError,
    InputError,
    PassFailed,
    PromptTooLong,
    StateError,
)


def log_failure(error: BaseException) -> None:
    """Warn once that the draft failed; the text continues without it."""
    message = printable((str(error) or type(error).__name__)[:200])
    known = error if not isinstance(error, EdgedecError) else None
    logging.getLogger("edgedec").warning(
        "the draft failed, going on without it: %s", message, exc_info=known
    )


_NOTHING = nullcontext()


class Engine:
    """Decodes with a target session and a drafter.

    An engine decodes one request at a time; engines that share a ``pool`` take turns round by
    round. A request that ends early, by an exception, a closed generator or ``cancelled``, leaves
    the engine ready for the next. The longest prefix of a prompt that the target has cached is not
    computed again. Subclasses override ``around_request`` and ``around_round``.

    Args:
        target: scores drafts.
        drafter: proposes drafts.
        policy: decides how much to draft.
        rule: decides which drafted tokens are kept.
        clock: returns seconds; a simulation passes its own.

    Attributes:
        target: the session of the last request, one of those in ``pool``.
        pool: the target's sessions, which keep their caches from one request to the next.
        last_tokens: prompt and output of the last request, which the drafter may still have cached.

    """

    def __init__(
        self,
        target: Session,
        drafter: Drafter,
        policy: DraftPolicy,
        rule: AcceptanceRule,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.pool = SessionPool(target)
        self.target = target
        self.drafter = drafter
        self.policy = policy
        self.rule = rule
        self._clock = clock
        self.last_tokens: Sequence[int] = ()
        self._running: Request | None = None
        self._pooled: PooledSession | None = None
        self._failure: PassFailed | None = None
        # Whether no draft of this request has failed.
        self._drafts = True
        # The drafter, if it reads the target's states in this request.
        self._reader: ReadsStates | None = None

    def run(self, request: Request, metrics: Metrics) -> Generator[list[Emission], None, None]:
        """Yield rounds of emitted tokens, until the stop rule, the deadline or ``cancelled`` ends
        them.

        ``request.stop.reason`` says why, possibly before the first token; ``metrics`` is updated
        each round.

        Raises:
            InputError: an empty prompt.
            PromptTooLong: no room for the prompt and one token.
            StateError: another request is running.

        """
        self.check_idle()
        self._running, self._failure, self._drafts = request, None, True
        self._reader = self._reader_of(request)
        left: Sequence[int] = request.sampler.history
        try:
            with self.around_request(metrics):
                yield from self._rounds(request, metrics)
        except Exception:  # not a closed generator or Ctrl-C, which leave whole tokens
            left = ()
            raise
        finally:
            if self._pooled is not None:  # else another engine may be decoding in the target
                if self._reader is not None:
                    self._tap(None)
                self._pooled.release(left)
            self._running = self._pooled = None
            self.last_tokens = request.sampler.history

    @property
    def held_tokens(self) -> Sequence[int]:
        """The tokens that ``target`` has cached; StateError during a request."""
        self.check_idle()
        return self.pool.held_tokens

    def set_held_tokens(self, tokens: Sequence[int]) -> None:
        """Record the tokens that were loaded into ``target``."""
        self.check_idle()
        self.pool.set_held_tokens(tokens)

    @property
    def running(self) -> bool:
        """True while a request is being decoded."""
        return self._running is not None

    def around_request(self, metrics: Metrics) -> AbstractContextManager[None]:
        """Return a context entered before prefill and left when the request ends."""
        return _NOTHING

    def around_round(self, metrics: Metrics) -> AbstractContextManager[None]:
        """Return a context for the prompt and each round, left before its tokens are yielded.

        It does not cover what the reader of the stream does between rounds.
        """
        return _NOTHING

    def room(self, prompt: Sequence[int]) -> int:
        """Return the number of tokens that can follow a prompt.

        Raises:
            InputError: an empty prompt.
            PromptTooLong: no room for the prompt and one token.

        """
        if not prompt:
            raise InputError("the prompt is empty: give some text")
        # The last token's keys and values are never needed.
        room = self.target.capacity - len(prompt) + 1
        if room < 1:
            raise PromptTooLong(
                f"the prompt has {len(prompt)} tokens and the context holds "
                f"{self.target.capacity}: shorten it"
            )
        return room

    def check_idle(self) -> None:
        """Raise StateError if a request is being decoded."""
        if self._running is not None:
            raise StateError(
                "another text is being decoded: read its stream to the end or close() it first"
            )

    def _rounds(self, request: Request, metrics: Metrics) -> Generator[list[Emission], None, None]:
        """Decode speculatively (2211.17192): propose, forward, accept, cut, commit."""
        sampler, stop, streams = request.sampler, request.stop, request.sampler.streams
        policy = request.policy or self.policy
        want = self._want(request)
        log, clock = RoundLog(self._clock, policy, metrics), self._clock
        with self.around_round(metrics):
            metrics.reused_tokens = self._start(request)
        left = request.prompt[self.target.length : -1]
        metrics.prefill_tokens_left = len(left)
        for part in in_turns(left, by_turns=request.by_turns):
            with self.around_round(metrics):
                if not prefill(self.target, part, partial(self._ended, request)):
                    break
            metrics.prefill_tokens_left -= len(part)
            if metrics.prefill_tokens_left:
                yield []
        policy.begin(stop.remaining)
        root = request.prompt[-1]
        # Forced tokens were emitted without a pass: they lead the next one.
        ahead: Sequence[int] = ()
        while not self._ended(request):
            with self.around_round(metrics):
                began = clock()
                wanted = policy.limits()
                limits = self._limits(wanted, stop, len(ahead))
                draft = self._propose(root, limits, policy.go_on, streams)
                drafted, tree = clock(), draft.tree
                whole = self.target.forward(tree.under(ahead) if ahead else tree, want=want)
                scored = whole.below(len(ahead)) if ahead else whole
                times = began, drafted, clock()
                rows = sampler.rows(scored, tree, Purpose.TARGET)
                verdict = self.rule.accept(draft, rows, streams)
                emitted = [*tree.tokens_on(verdict.path[1:]), verdict.next_token]
                # Log probabilities of a forced token would need its row.
                if sampler.constraint is not None and request.logprobs is None:
                    emitted += sampler.forced(emitted, wanted.nodes)
                kept, texts = stop.cut(emitted)
                emissions = _emissions(kept, texts, verdict, rows, request.logprobs)
                sampler.push(kept)
                self._commit(RoundFeedback(draft, verdict, scored, kept), len(ahead), whole)
                log.end(times, draft, verdict, kept, len(ahead))
            yield emissions
            ahead, root = kept[len(verdict.path) - 1 : -1], kept[-1]

    def _propose(self, root: int, limits: DraftLimits, go_on: GoOn, streams: Streams) -> Draft:
        """Return a draft; once one fails there are none in this request."""
        try:
            return self.drafter.propose(root, limits, go_on, streams)
        except DraftFailed as error:
            self._drafts = False
            log_failure(error)
        return Draft(TokenTree(root), source=self.drafter.name)

    def _want(self, request: Request) -> Want:
        want = request.sampler.want | self.rule.want
        want = want if self._reader is None else want | Want.STATES
        return want if request.logprobs is None else want | Want.LOGITS

    def _commit(self, feedback: RoundFeedback, ahead: int, whole: Pass) -> None:
        """Commit the round's nodes; defer a device failure until its tokens have been yielded."""
        path = feedback.verdict.path[: len(feedback.kept)]
        nodes = [*range(ahead), *(node + ahead for node in path)] if ahead else path
        position = self.target.length
        try:
            self.target.commit(nodes)
            self.drafter.observe(feedback)
            if self._reader is not None and whole.states is not None:
                self._reader.read(position, whole.states[nodes])
        except PassFailed as error:
            self._failure = error

    def _start(self, request: Request) -> int:
        """Take a session for the prompt; return how many of its tokens are cached already."""
        prompt = request.prompt
        self.room(prompt)
        self._pooled = self.pool.acquire(prompt)
        self.target = self._pooled.session
        if request.prepare is not None:
            request.prepare(self._pooled)
        self.drafter.begin(prompt, request.sampler)
        if self._reader is not None and self._reader.attach(self.target):
            self._tap(self._reader.read)
        return self.target.length

    def _reader_of(self, request: Request) -> ReadsStates | None:
        """Return the drafter if it reads states; not where nothing is ever drafted."""
        drafter, policy = self.drafter, request.policy or self.policy
        if policy.name == "fixed" and not policy.limits().nodes:
            return None
        reads = isinstance(drafter, ReadsStates) and drafter.reads_states
        return drafter if reads and isinstance(drafter, ReadsStates) else None

    def _tap(self, on_states: OnStates | None) -> None:
        if isinstance(self.target, Tapped):
            self.target.tap(on_states)

    def _ended(self, request: Request) -> bool:
        """Return whether the request has ended, by its stop rule, deadline or cancellation.

        Raises:
            PassFailed: the last round's commit failed; its tokens were yielded before.

        """
        if self._failure is not None:
            raise self._failure
        if request.stop.reason is not None:
            return True
        if request.cancelled.is_set():
            request.stop.reason = "cancelled"
        elif request.deadline is not None and self._clock() > request.deadline:
            request.stop.reason = "timeout"
        elif self.target.length >= self.target.capacity:
            request.stop.reason = "length"
        return request.stop.reason is not None

    def _limits(self, wanted: DraftLimits, stop: StopRule, ahead: int) -> DraftLimits:
        # A round always adds one token of the target's own, so drafts leave room for it.
        depth = min(wanted.depth, stop.remaining - 1) if self._drafts else 0
        nodes = min(wanted.nodes, self.target.capacity - self.target.length - 1) - ahead
        return DraftLimits(max(0, nodes) if depth > 0 else 0, depth)


def _emissions(
    kept: Sequence[int], texts: Sequence[str], verdict: Verdict, rows: Rows, logprobs: int | None
) -> list[Emission]:
    """Return a round's emissions: token i comes from the row of path node i.

    The one after the accepted draft is the target's own, and those after it were forced.

    Args:
        kept: tokens that belong to the text.
        texts: the text that each of them completes.
        rows: the target's.
        logprobs: as ``Request.logprobs``; None if tokens were forced, since those have no row yet.

    """
    accepted = len(verdict.path) - 1
    if logprobs is None:
        sources = ["draft"] * accepted + ["target"] + ["forced"] * len(kept)
        return [Emission(*one) for one in zip(kept, texts, sources[: len(kept)], strict=True)]
    emissions = []
    for i, (token, text) in enumerate(zip(kept, texts, strict=True)):
        source = "draft" if i < accepted else "target"
        node = verdict.path[i]
        best = rows.top_logprobs(node, logprobs)
        emissions.append(Emission(token, text, source, rows.logprob(node, token), best))
    return emissions
