"""Decodes prompts twice, plainly and speculatively, as a demonstration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from edgedec.compare.interleaved import OnProgress
from edgedec.decoding import drafting
from edgedec.decoding.emission import Emission
from edgedec.decoding.policy import CostCurve, Fixed, MeasuredCost
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.hardware.energy import EnergyMeter
from edgedec.loading.build import OpenOptions
from edgedec.models.demo.heldout import Prompt
from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream
from edgedec.testing.paced import PacedModel, PacedSession

PLAIN, SPECULATIVE = "plain", "speculative"
WARM_UP_TOKENS = 48
_NGRAM = 4  # readers notice shorter repetitions than 8-grams

# The side and the token.
OnToken = Callable[[str, Emission], None]


@dataclass(frozen=True, slots=True)
class PairedText:
    """One prompt, decoded twice.

    Attributes:
        name, prompt: its name, and the text that was continued.
        plain, speculative: both continuations.
        joules: the whole machine's energy per token of each side; empty if the machine does not
            report it or both sides ran at once.

    """

    name: str
    prompt: str
    plain: Generation
    speculative: Generation
    joules: Mapping[str, float] = field(default_factory=dict)

    @property
    def identical(self) -> bool:
        """True if both sides generated the same tokens."""
        return self.plain.token_ids == self.speculative.token_ids

    @property
    def speedup(self) -> float:
        """Plain TPOT over speculative TPOT; 0 if either has none."""
        plain, other = self.plain.metrics.tpot_s, self.speculative.metrics.tpot_s
        return plain / other if plain and other else 0.0


class SideBySide:
    """Two pipelines over one bundle; a context manager.

    A text is shown again and again, so that none is kept for drafts of a later one.

    Args:
        bundle: a bundle's folder, or ``demo``.
        options: options of the speculative side; the plain side differs only in the drafter. Both
            sides are batch-invariant if the options and the drafter allow it and the runtime
            supports it, so that their tokens are the same even at near-ties.

    Raises:
        InputError: no drafter.

    """

    def __init__(self, bundle: str | Path, options: OpenOptions | None = None) -> None:
        options = options or OpenOptions()
        if options.drafter == drafting.PLAIN:
            raise InputError(
                "--drafter none is what a drafter is compared with: choose another drafter"
            )
        self._stack = ExitStack()
        if options.load.batch_invariant is None and not drafting.info(options.drafter).branches:
            # A runtime without batch invariance refuses; any other error occurs again without it.
            with suppress(InputError, RuntimeUnavailable):
                self._open(bundle, options.changed(batch_invariant=True))
                return
        self._open(bundle, options)

    def _open(self, bundle: str | Path, options: OpenOptions) -> None:
        with ExitStack() as stack:
            self._sides = {
                PLAIN: stack.enter_context(Pipeline.open(bundle, options, drafter=drafting.PLAIN)),
                SPECULATIVE: stack.enter_context(Pipeline.open(bundle, options)),
            }
            self._stack = stack.pop_all()

    def warm_up(self, prompt: str) -> None:
        """Decode a few tokens, without showing them, to load code and measure costs."""
        for pipeline in self._sides.values():
            pipeline.generate(prompt, GenerateOptions(WARM_UP_TOKENS, owner=None))

    def write(self, prompt: str, options: GenerateOptions) -> Generation:
        """Return the text that both sides will generate after a prompt, without showing it."""
        return self._sides[SPECULATIVE].generate(prompt, replace(options, owner=None))

    def hold(self, one_row_s: float) -> None:
        """Pace both sides' targets from now on, see ``curve``."""
        for pipeline in self._sides.values():
            hold(pipeline, one_row_s)

    def in_turn(
        self, name: str, prompt: str, options: GenerateOptions, on_token: OnToken
    ) -> PairedText:
        """Decode a prompt with both sides in turn; calls ``on_token`` with each token."""
        found, joules = {}, {}
        for side in self._sides:
            meter = EnergyMeter()
            found[side] = self._decode(side, prompt, options, on_token)
            if (used := meter.per_token(found[side].metrics)) is not None:
                joules[side] = used
        return PairedText(name, prompt, found[PLAIN], found[SPECULATIVE], joules)

    def at_once(
        self, name: str, prompt: str, options: GenerateOptions, on_token: OnToken
    ) -> PairedText:
        """Decode a prompt with both sides at once, in two threads.

        Only fair if targets are paced so that the processor is idle most of the time. ``on_token``
        is called in the caller's thread.
        """
        news: SimpleQueue[tuple[str, Emission | None]] = SimpleQueue()
        options = replace(options, owner=None)
        streams = {side: each.stream(prompt, options) for side, each in self._sides.items()}

        def decode(side: str) -> Generation:
            try:
                return _read(streams[side], lambda event: news.put((side, event)))
            finally:
                news.put((side, None))

        with ThreadPoolExecutor(len(streams)) as pool:
            running = {side: pool.submit(decode, side) for side in streams}
            try:
                left = len(streams)
                while left:
                    side, event = news.get()
                    if event is None:
                        left -= 1
                    else:
                        on_token(side, event)
            finally:  # after Ctrl-C the threads end with their running passes
                for stream in streams.values():
                    stream.cancel()
        return PairedText(name, prompt, running[PLAIN].result(), running[SPECULATIVE].result())

    def _decode(
        self, side: str, prompt: str, options: GenerateOptions, on_token: OnToken
    ) -> Generation:
        stream = self._sides[side].stream(prompt, replace(options, owner=None))
        return _read(stream, lambda event: on_token(side, event))

    def close(self) -> None:
        """Close both pipelines."""
        self._stack.close()

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def _read(stream: Stream, on_token: Callable[[Emission], None]) -> Generation:
    for event in stream:
        on_token(event)
    if stream.result is None:
        raise RuntimeError("the stream ended without a result")
    return stream.result


def repeated_share(tokens: Sequence[int], n: int = 8) -> float:
    """Return the share of a text's n-grams that occurred in it before; 0 for a shorter text."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def least_repetitive(
    prompts: Sequence[Prompt],
    decode: Callable[[str], Generation],
    count: int,
    max_new_tokens: int,
    on_progress: OnProgress | None = None,
) -> list[Prompt]:
    """Return the ``count`` prompts whose texts repeat the fewest 4-grams, in their original order.

    Texts that end early are chosen last.
    """
    found = []
    for index, prompt in enumerate(prompts):
        tokens = decode(prompt.text).token_ids
        found.append((len(tokens) < max_new_tokens, repeated_share(tokens, _NGRAM), index, prompt))
        if on_progress is not None:
            on_progress(len(found), len(prompts))
    best = sorted(found, key=lambda entry: entry[:3])[:count]
    return [prompt for *_, prompt in sorted(best, key=lambda entry: entry[2])]


# -- pacing a target to the time of a larger one, so that a person can watch it decode ----------

# Pass times over that of one row: a half-billion decoder in int4 on two x86-64 cores
# (docs/measurements/formats.jsonl).
_ROWS = (1, 2, 3, 4, 8, 16)
_RATIOS = (1.0, 1.16, 1.38, 1.53, 2.32, 3.86)
# Chunks of a prompt are wider, and are not paced.
_MOST_ROWS = 32


def curve(one_row_s: float) -> CostCurve:
    """Return the cost curve of passes whose single row takes ``one_row_s`` seconds."""
    return CostCurve(_ROWS, tuple(one_row_s * ratio for ratio in _RATIOS))


def hold(pipeline: Pipeline, one_row_s: float) -> None:
    """Pace a pipeline's target to ``curve(one_row_s)`` from now on.

    A slower pass takes its own time. A policy of measured costs gets the paced ones.
    """
    engine, held = pipeline.engine, curve(one_row_s)

    def seconds(rows: int, context: int) -> float:
        return held.at(rows) if rows <= _MOST_ROWS else 0.0

    engine.target = engine.pool.session = PacedSession(
        PacedModel(pipeline.target, seconds), engine.target
    )
    if isinstance(engine.policy, MeasuredCost):
        engine.policy = MeasuredCost(held, engine.policy.draft_s)
    elif isinstance(engine.policy, Fixed) and engine.policy.lone_row_s is not None:
        engine.policy.lone_row_s = held.at(1)
