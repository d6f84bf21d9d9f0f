"""Open models and their engines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from edgedec.decoding.drafting._earlier import EarlierTexts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.prefill import shared_length
from edgedec.decoding.request import Request
from edgedec.decoding.session import Model
from edgedec.loading.in_use import FilesInUse
from edgedec.loading.sources import Pair
from edgedec.memory.guard import MemoryGuard, Restrained
from edgedec.text.tokenizer import Tokenizer


@dataclass(slots=True)
class OpenPair:
    """Open models and their engine.

    Attributes:
        pair: the files that were loaded.
        facts: how texts are decoded, as ``--json`` prints it under ``plan``.
        stack: closes sessions and models.
        parallel_engines: engines that take turns with ``engine``.
        contexts: most tokens of each engine's last request, by the engine's ``id``.
        in_use: notices a weight file that shrinks.
        earlier: the texts that drafters copy from; None if they copy from none.
        bound: the limit on the context; see ``CachePlan``.
        guard: enforces the memory limit; None without one.

    """

    pair: Pair
    target: Model
    engine: Engine
    tokenizer: Tokenizer
    facts: dict[str, Any]
    stack: ExitStack
    bound: str
    guard: MemoryGuard | None = None
    parallel_engines: Sequence[Engine] = ()
    contexts: dict[int, int] = field(default_factory=dict)
    in_use: FilesInUse = field(default_factory=lambda: FilesInUse(()))
    earlier: EarlierTexts | None = None
    closed: bool = False

    @property
    def notes(self) -> Sequence[str]:
        """One line if the draft model could not be loaded again after it was unloaded."""
        return () if self.guard is None else self.guard.notes

    def idle_engine(self, prompt: Sequence[int]) -> Engine:
        """Return the idle engine whose drafter has the longest prefix of a prompt cached.

        If all are running, return one of them, which refuses the request.
        """
        engines = [self.engine, *self.parallel_engines]
        idle = [engine for engine in engines if not engine.running]
        return max(idle or engines, key=lambda engine: shared_length(engine.last_tokens, prompt))

    def within_memory(self, request: Request, metrics: Metrics, engine: Engine) -> Request:
        """Return the request with a policy that keeps it within the memory limit, if there is one.

        Raises:
            MemoryBudgetError: the request does not fit in the limit.
            StateError: the engine is decoding another request, to which the guard belongs.

        """
        if self.guard is None:
            return request
        engine.check_idle()
        # The last token's keys and values are never needed.
        context = min(len(request.prompt) + request.stop.remaining, engine.target.capacity)
        self.contexts[id(engine)] = context
        others = [
            self.contexts[id(one)] for one in (self.engine, *self.parallel_engines) if one.running
        ]
        sampled = bool(others) or not request.sampler.params.greedy
        longest, *beside = sorted([context, *others], reverse=True)
        prompt = max([len(request.prompt), *others])
        self.guard.begin(longest, metrics, sampled=sampled, prompt=prompt, beside=beside)
        policy = request.policy or engine.policy
        return dataclasses.replace(
            request,
            policy=Restrained(policy, self.guard),
            prepare=partial(self.guard.take, tokens=context),
        )

    def free_bytes(self) -> int | None:
        """Return the granted bytes that no running text needs; None without a memory limit."""
        running = any(one.running for one in (self.engine, *self.parallel_engines))
        return None if self.guard is None else self.guard.free_bytes(running=running)

    def close(self) -> None:
        """Close the sessions, then the models."""
        self.closed = True
        if self.guard is not None:
            self.guard.leave()
        self.stack.close()
