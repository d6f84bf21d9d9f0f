"""A request for an engine: a prompt, how to sample its continuation, and when to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from edgedec.decoding.policy import DraftPolicy
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session_pool import PooledSession
from edgedec.decoding.stopping import StopRule


@dataclass(slots=True)
class Request:
    """A prompt to continue, with the sampler and stop rule that hold the generation's state.

    Attributes:
        prompt: at least one token.
        sampler: made with the same prompt.
        stop: likewise.
        logprobs: None for none; 0 for each emitted token's own; n for the n most likely as well.
        deadline: the engine clock's time after which decoding ends with ``"timeout"``.
        cancelled: set it from any thread, even before the start, to end decoding after the current
            pass with ``"cancelled"``.
        policy: how much to draft in this request; None is the engine's policy, which learns nothing
            from a request that has its own. ``policy.for_request`` makes one.
        by_turns: whether other requests wait for their turn: each chunk of the prompt but the last
            is then a round of its own, which yields no token.
        prepare: called with the target's session before anything is computed in it; it may make the
            session forget tokens.

    """

    prompt: Sequence[int]
    sampler: Sampler
    stop: StopRule
    logprobs: int | None = None
    deadline: float | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    policy: DraftPolicy | None = None
    by_turns: bool = False
    prepare: Callable[[PooledSession], None] | None = None
