"""The only decoding loop: propose, forward, accept, cut, commit. Plain decoding runs it, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter

from edgedec.decoding.acceptance import AcceptanceRule, Verdict
from edgedec.decoding.drafting.base import Drafter, DraftLimits, RoundFeedback
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, RoundRecord
from edgedec.decoding.randomness import Purpose
from edgedec.decoding.sampling import Rows, Sampler
from edgedec.decoding.session import Session, Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import Draft
from edgedec.errors import InputError, Interrupted, PassFailed, PromptTooLong, StateError

TopLogprobs = list[tuple[int, float]]

_NOTHING = nullcontext()


@dataclass(frozen=True, slots=True)
class Emission:
    """One emitted token.

    Attributes:
        token: its id.
        text: the text that its arrival released; may be empty, never half a character.
        source: ``"draft"`` when a drafted token was accepted, else ``"target"``.
        logprob: log p of the token under the target's own distribution (temperature 1,
            before bias and penalties), when asked for.
        top_logprobs: the most likely tokens of the same row, best first, likewise.
    """

    token: int
    text: str
    source: str
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None


@dataclass(slots=True)
class Request:
    """A text to decode, with the sampler and stop rule that hold its state.

    Attributes:
        prompt: at least one token.
        sampler: made with the same prompt.
        stop: likewise.
        logprobs: None for none; 0 for the token's own; n for the n best as well.
        deadline: the engine clock's time after which decoding ends with ``"timeout"``.
        cancelled: set it from any thread, also before the start, to end decoding after the current
            pass with ``"cancelled"``.
        policy: how much to draft in this request; None is the engine's policy, which learns nothing
            from a request with its own. ``policy.for_request`` makes one.

    """

    prompt: Sequence[int]
    sampler: Sampler
    stop: StopRule
    logprobs: int | None = None
    deadline: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    policy: DraftPolicy | None = None


class Engine:
    """Decodes with a target session and a drafter.

    One request at a time. A request that ends early, by an exception, a closed generator or
    ``cancelled``, leaves the engine ready for the next. A subclass hooks in through ``around_text``
    and ``around_round``.

    Args:
        target: scores drafts.
        drafter: proposes drafts.
        policy: decides how much to draft.
        rule: decides which drafted tokens are kept.
        clock: returns seconds; a simulation passes its own.

    """

    def __init__(
        self,
        target: Session,
        drafter: Drafter,
        policy: DraftPolicy,
        rule: AcceptanceRule,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.policy = policy
        self.rule = rule
        self._clock = clock
        self._running: Request | None = None
        self._failure: PassFailed | None = None

    def run(self, request: Request, metrics: Metrics) -> Iterator[list[Emission]]:
        """Yield rounds of emitted tokens, until the stop rule, the deadline or ``cancelled`` ends
        them.

        ``request.stop.reason`` says why, possibly before the first token; ``metrics`` is updated
        each round.

        Raises:
            InputError: an empty prompt.
            PromptTooLong: no room for the prompt and one token.
            StateError: another request is running.

        """
        if self._running is not None:
            raise StateError(
                "another text is being decoded: read its stream to the end or close() it first"
            )
        self._running, self._failure = request, None
        try:
            with self.around_text(metrics):
                yield from self._rounds(request, metrics)
        finally:
            self._running = None

    def around_text(self, metrics: Metrics) -> AbstractContextManager[None]:
        """Return a context entered before the prompt is read and left when the text ends."""
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

    def _rounds(self, request: Request, metrics: Metrics) -> Generator[list[Emission], None, None]:
        """Decode speculatively (2211.17192): propose, forward, accept, cut, commit."""
        sampler, stop, streams = request.sampler, request.stop, request.sampler.streams
        policy = request.policy or self.policy
        want = self._want(request)
        log = _RoundLog(self._clock, policy, metrics)
        with self.around_round(metrics):
            self._prefill(request)
        policy.begin(stop.remaining)
        root = request.prompt[-1]
        while not self._ended(request):
            with self.around_round(metrics):
                log.begin()
                limits = self._limits(policy, stop)
                draft = self.drafter.propose(root, limits, policy.go_on, streams)
                log.drafted()
                scored = self.target.forward(draft.tree, want=want)
                log.verified()
                rows = sampler.rows(scored, draft.tree, Purpose.TARGET)
                verdict = self.rule.accept(draft, rows, streams)
                emitted = [*draft.tree.tokens_on(verdict.path[1:]), verdict.next_token]
                kept, texts = stop.cut(emitted)
                emissions = _emissions(kept, texts, verdict, rows, request.logprobs)
                sampler.push(kept)
                self._commit(RoundFeedback(draft, verdict, scored, kept))
                log.end(draft, verdict, kept)
            yield emissions
            root = kept[-1]

    def _want(self, request: Request) -> Want:
        want = request.sampler.want | self.rule.want
        return want if request.logprobs is None else want | Want.LOGITS

    def _commit(self, feedback: RoundFeedback) -> None:
        """Commit the round's nodes; a device failure is raised after the round's tokens are out."""
        try:
            self.target.commit(feedback.verdict.path[: len(feedback.kept)])
            self.drafter.observe(feedback)
        except PassFailed as error:
            self._failure = error

    def _prefill(self, request: Request) -> None:
        """Read the prompt, or stop early if the request ends meanwhile."""
        prompt = request.prompt
        self.room(prompt)
        self.target.rollback(0)
        self.drafter.begin(prompt, request.sampler)

        def between_chunks(done: int = 0, total: int = 0) -> None:
            if self._ended(request):
                raise Interrupted("ended while reading the prompt")

        try:
            between_chunks()
            self.target.prefill(prompt[:-1], between_chunks)
        except Interrupted:
            if request.stop.reason is None:  # the session was interrupted, not the request
                raise
            return

    def _ended(self, request: Request) -> bool:
        """Return whether the text has ended, by its stop rule, deadline or cancellation.

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

    def _limits(self, policy: DraftPolicy, stop: StopRule) -> DraftLimits:
        # A round always adds one token of the target's own, so drafts leave room for it.
        wanted = policy.limits()
        depth = min(wanted.depth, stop.remaining - 1)
        nodes = min(wanted.nodes, self.target.capacity - self.target.length - 1)
        return DraftLimits(nodes if depth > 0 else 0, depth)


def _emissions(
    kept: Sequence[int], texts: Sequence[str], verdict: Verdict, rows: Rows, logprobs: int | None
) -> list[Emission]:
    """Token i comes from the row of path node i; the last of a full round from the target."""
    accepted = verdict.accepted
    emissions = []
    for i, (token, text) in enumerate(zip(kept, texts, strict=True)):
        source = "draft" if i < accepted else "target"
        if logprobs is None:
            emissions.append(Emission(token, text, source))
            continue
        node = verdict.path[i]
        best = rows.top_logprobs(node, logprobs)
        emissions.append(Emission(token, text, source, rows.logprob(node, token), best))
    return emissions


class _RoundLog:
    """Times a text's rounds, and records them for the policy and the metrics."""

    def __init__(self, clock: Callable[[], float], policy: DraftPolicy, metrics: Metrics) -> None:
        self._clock, self._policy, self._metrics = clock, policy, metrics
        self._started = self._begin = self._drafted = self._verified = clock()

    def begin(self) -> None:
        self._begin = self._clock()

    def drafted(self) -> None:
        self._drafted = self._clock()

    def verified(self) -> None:
        self._verified = self._clock()

    def end(self, draft: Draft, verdict: Verdict, kept: Sequence[int]) -> None:
        now, begin = self._clock(), self._begin
        record = RoundRecord(
            drafted=draft.drafted,
            depth=max(draft.tree.depths),
            accepted=min(verdict.accepted, len(kept)),
            emitted=len(kept),
            rows=len(draft.tree),
            draft_s=self._drafted - begin,
            target_s=self._verified - self._drafted,
            total_s=now - begin,
            source=draft.source,
            path=verdict.path,
            tokens=kept,
        )
        self._policy.observe(record)
        # Deciding how much to draft is part of the round's time.
        self._metrics.observe(record, self._clock() - begin, self._policy.lone_row_s)
        if self._metrics.target_passes == 1:
            self._metrics.ttft_s = now - self._started
