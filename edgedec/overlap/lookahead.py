"""The draft's thread, which drafts ahead while the target verifies, and its queue of jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from edgedec.decoding.drafting._context import DraftContext
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.drafting.tree import RankCalibration
from edgedec.decoding.sampling import Sampler
from edgedec.errors import InputError, Interrupted
from edgedec.hardware.clock import Clock
from edgedec.hardware.pinning import pinned
from edgedec.overlap.lookahead_tree import DraftPassTimes, LookaheadNode, LookaheadTree


class Lookahead:
    """Grows a ``LookaheadTree`` below the last token, pass by pass, in a thread of its own.

    The engine's thread calls its methods. None of them waits for a pass; their messages reach the
    draft's thread in order. Results are read from the ``LookaheadNode`` that ``begin`` returned,
    while it grows: the two threads share only that, ``news`` and a few figures.

    Args:
        parts: with a draft model, whose session it owns from then on; if ``draft_branches`` is 1,
            the tree does not branch.

    Attributes:
        news: set when there may be a new token, or none will come.
        failure: the error that stopped drafting in this request, or None.

    Raises:
        InputError: there is no draft model, or it drafts by text.
        RuntimeUnavailable: this process may not use these cores.

    """

    def __init__(
        self,
        parts: DrafterParts,
        clock: Clock,
        *,
        name: str = ModelDrafter.name,
        cores: Sequence[int] | None = None,
    ) -> None:
        if parts.by_text:
            raise InputError(
                "overlapped drafting needs a draft with the target's tokens, and these two share"
                " too few: draft sequentially, or with --drafter lookup"
            )
        self._context = DraftContext(parts, name)
        self._session = parts.draft
        self._clock, self._branches = clock, parts.draft_branches
        self._calibration, self._times = RankCalibration(), DraftPassTimes()
        self._tree: LookaheadTree | None = None
        self._paused = self._resting = self._exhausted = False
        # Seconds computed so far, and the start of the current pass, replaced together.
        self._busy: tuple[float, float | None] = 0.0, None
        self.news = clock.signal()
        self.failure: BaseException | None = None
        self._worker = Worker(clock, f"draft {name}", self._grow, self._fail, cores)

    # -- called from the engine's thread --------------------------------------------------------

    def begin(self, sampler: Sampler) -> LookaheadNode:
        """Begin a request, whose prompt the sampler holds; return the root to read from."""
        root = LookaheadNode(sampler.history[-1])
        self.failure = None
        self._exhausted = False
        self._worker.post(partial(self._begin, sampler.twin(), root))
        self._stop()
        return root

    def advance(self, root: LookaheadNode, kept: Sequence[int]) -> None:
        """Move to ``root``, reached from the last root by the tokens ``kept``.

        A pass that only serves abandoned branches is interrupted.
        """
        self._exhausted = False
        self._worker.post(partial(self._advance, root, tuple(kept)))
        tree = self._tree
        computing = () if tree is None else tree.computing
        if computing and not any(node.related(root) for node in computing):
            self._stop()

    def add(self, root: LookaheadNode, tokens: Sequence[int]) -> None:
        """Also draft below this path of tokens, which the target is verifying."""
        self._worker.post(partial(self._add, root, tuple(tokens)))

    def pause(self) -> None:
        """Start no further pass; may be called from any thread, and returns at once."""
        self._paused = True

    def resume(self) -> None:
        """Go on after ``pause``; may be called from any thread, and returns at once."""
        if self._paused:
            self._paused = False
            self._worker.wake()

    def rest(self, *, now: bool) -> None:
        """Stop or resume drafting while no draft is wanted; independent of ``pause``."""
        if self._resting != now:
            self._resting = now
            self._worker.wake()

    def evict(self) -> None:
        """Empty the draft's cache; nothing is drafted until ``begin``."""
        self._worker.post(self._evict)
        self._stop()

    def end(self) -> None:
        """End the request: idle until ``begin``."""
        self._worker.post(self._forget)
        self._stop()

    def close(self) -> None:
        """End the thread and close the session."""
        self._worker.close(self._interrupt)
        self._context.close()

    @property
    def busy_s(self) -> float:
        """Time that the draft has computed so far, in all requests, in seconds."""
        total, since = self._busy
        return total if since is None else total + self._clock.now() - since

    def expected_s(self, node: LookaheadNode) -> float:
        """Return the seconds until the token after a node may be drafted; inf if never."""
        tree = self._tree
        held = self._paused or self._resting or self._exhausted
        if held or tree is None or not self._times.known:
            return inf
        since, pass_s = self._busy[1], self._times.at(1)
        if since is None:
            return pass_s
        left = max(0.0, pass_s - (self._clock.now() - since))
        return left if node in tree.computing else left + pass_s

    # -- in the draft's thread ------------------------------------------------------------------

    def _begin(self, sampler: Sampler, root: LookaheadNode) -> None:
        self.failure = None
        self._context.begin(sampler.history, sampler)
        self._tree = LookaheadTree(
            self._context, sampler, root, self._calibration, branches=self._branches
        )

    def _advance(self, root: LookaheadNode, kept: Sequence[int]) -> None:
        if self._tree is not None:
            self._tree.advance(root, kept)

    def _add(self, root: LookaheadNode, tokens: Sequence[int]) -> None:
        if self._tree is not None:
            self._tree.add(root, tokens)

    def _forget(self) -> None:
        self._tree = None

    def _grow(self) -> bool:
        tree = self._tree
        if tree is None or self._paused or self._resting:
            return False
        if self._context.make_room(1) < 1:  # the session cannot hold the text
            self._exhausted = True
            return False
        began, (total, _) = self._clock.now(), self._busy
        self._busy = total, began
        try:
            if self._context.behind():
                self._context.catch_up()
                return True
            rows = tree.grow(self._times)
            if rows:
                self._times.observe(rows, self._clock.now() - began)
            self._exhausted = not rows
            return rows > 0
        finally:
            self._busy = total + self._clock.now() - began, None
            self.news.set()

    def _evict(self) -> None:
        self._forget()
        self._context.evict()

    def _fail(self, error: BaseException) -> None:
        self.failure, self._tree = error, None
        self.news.set()

    def _stop(self) -> None:
        # If the pass is just ending, the next one is interrupted needlessly and tried again.
        if self._busy[1] is not None:
            self._interrupt()

    def _interrupt(self) -> None:
        assert self._session is not None, "a DraftContext needs a draft model"
        self._session.interrupt()


# -- a thread that runs jobs in order, and background work between them ------------------------

Job = Callable[[], object]


class Worker:
    """One thread that runs jobs in the order they were posted, and ``idle`` the rest of the time.

    No caller waits for a job's result, so jobs are messages that return nothing, and exceptions go
    to ``failed`` in the worker's thread, which then goes on.

    Args:
        idle: called repeatedly while it returns True; after False the thread waits for a job.
        failed: called with any exception of a job or ``idle`` but ``Interrupted``: the job that
            interrupted the pass is already posted.

    Raises:
        RuntimeUnavailable: this process may not use these cores.

    """

    def __init__(
        self,
        clock: Clock,
        name: str,
        idle: Callable[[], bool],
        failed: Callable[[BaseException], object],
        cores: Sequence[int] | None = None,
    ) -> None:
        with pinned(cores):
            pass  # unusable cores raise here, where it can be handled, not in the thread
        self._idle, self._failed = idle, failed
        # One thread appends and another takes; deques are safe for that.
        self._jobs: deque[Job] = deque()
        self._wake = clock.signal()
        self._closing = False
        self._task = clock.start(self._run, name=name, cores=cores)

    def post(self, job: Job) -> None:
        self._jobs.append(job)
        self._wake.set()

    def wake(self) -> None:
        """Call ``idle`` again, since it may have work."""
        self._wake.set()

    def close(self, interrupt: Callable[[], object]) -> None:
        """End the thread and wait for it; ``interrupt`` stops a pass it may be in."""
        if not self._closing:
            self._closing = True
            interrupt()
            self._wake.set()
        self._task.join()

    def _run(self) -> None:
        while True:
            # Cleared before jobs are checked, so that neither a job nor close() is missed.
            self._wake.clear()
            if self._closing:
                return
            try:
                while self._jobs:
                    self._jobs.popleft()()
                if not self._idle():
                    self._wake.wait()
            except Interrupted:
                self._wake.wait(0)  # a clock that has ended raises here, which ends the thread
            except BaseException as error:  # nothing may end the thread
                self._failed(error)
