"""Does speculative decoding write the same text as plain decoding, on this machine?

Both sides decode the same prompts, greedily and sampled with a seed (the Gumbel coupling
promises the same text there as well). Where two texts part, arithmetic may be to blame: a
row's logits can depend on how many rows a pass has. So the first divergence of a prompt, and
no later one, is a **near-tie** when the gap between the two tokens is no larger than the
99.9th percentile of what the width of a pass changes on the other prompts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgedec.assembly import OpenOptions
from edgedec.bench.replay import replay, width_changes
from edgedec.bundle import Bundle
from edgedec.decoding.acceptance import GumbelCoupling, SampleAndMatch, rule
from edgedec.decoding.randomness import Purpose, Streams
from edgedec.decoding.sampling import SamplingParams
from edgedec.decoding.tree import FloatArray
from edgedec.errors import InputError
from edgedec.pair import is_gguf
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

PERCENTILE = 99.9
# Prompts that the cross-width differences are measured on.
SAMPLE = 8

OnText = Callable[[int, int], None]
# Token ids by mode and number of the prompt.
Texts = dict[tuple[str, int], list[int]]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where the two texts of a prompt differ.

    Attributes:
        mode: ``greedy`` or ``sampled``.
        prompt: its name.
        position: tokens of the text before it.
        plain, speculative: the token of either side; None where that text had ended.
        gap: between the two tokens' scores (logit, over temperature, plus noise) in plain
            decoding; None where one of them is missing.
        tolerance: what the width of a pass changes, same scale.
        near_tie: ``gap <= tolerance``.

    """

    mode: str
    prompt: str
    position: int
    plain: int | None
    speculative: int | None
    gap: float | None
    tolerance: float
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """What was compared and what came of it.

    Attributes:
        texts: pairs of texts compared: two for each prompt.
        identical: pairs with the same token ids.
        tokens: tokens of the plain texts.
        divergences: one for each pair that is not identical.
        drafted_tokens, accepted_tokens: of the speculative side; nothing drafted shows
            nothing.
        plan: of the speculative side.

    """

    texts: int
    identical: int
    tokens: int
    drafted_tokens: int
    accepted_tokens: int
    plan: dict[str, Any]
    divergences: list[Divergence] = field(default_factory=list)

    @property
    def near_ties(self) -> int:
        """Divergences that arithmetic explains."""
        return sum(divergence.near_tie for divergence in self.divergences)

    @property
    def holds(self) -> bool:
        """Every text is identical up to a near-tie, and something was drafted."""
        return self.near_ties == len(self.divergences) and self.drafted_tokens > 0

    def to_json(self) -> dict[str, Any]:
        """Everything as a JSON object."""
        return {"holds": self.holds, "near_ties": self.near_ties, **dataclasses.asdict(self)}


def verify(
    bundle: str | Path,
    prompts: Sequence[tuple[str, Prompt]],
    *,
    max_new_tokens: int = 128,
    sampling: SamplingParams | None = None,
    options: OpenOptions | None = None,
    on_text: OnText | None = None,
    plain: Texts | None = None,
) -> Verification:
    """Compare plain with speculative text on these prompts.

    Args:
        bundle: a bundle's folder, or ``demo``, whose files are all hashed first; or a GGUF file.
        prompts: (name, prompt) pairs.
        max_new_tokens: of each text; an end-of-text token does not end it.
        sampling: of the sampled side, beside the greedy one; default temperature 0.8, seed 0.
        options: of the speculative side; the plain side differs in the drafter alone.
        on_text: called with texts done and texts to do.
        plain: keeps the plain texts for a next call that differs in the drafter alone.

    Raises:
        InputError: no prompts, or options that draft nothing or promise no text.
        BundleError: the bundle is damaged.

    """
    options = options or OpenOptions()
    sampling = sampling or SamplingParams(temperature=0.8, seed=0)
    _check(prompts, sampling, options)
    if not is_gguf(bundle):
        Bundle.open(bundle, verify=True)
    modes = {
        name: GenerateOptions(max_new_tokens, params, ignore_eos=True)
        for name, params in (("greedy", SamplingParams()), ("sampled", sampling))
    }
    plain = {} if plain is None else plain
    progress = _Progress(on_text, (1 if plain else 2) * len(modes) * len(prompts))
    with Pipeline.open(bundle, options) as pipeline:
        plan = pipeline.plan
        drafted, counts = _texts(pipeline, prompts, modes, progress)
    with Pipeline.open(bundle, options, draft="none") as pipeline:
        if not plain:
            plain.update(_texts(pipeline, prompts, modes, progress)[0])
        found = _Comparison(pipeline, prompts, modes, plain).divergences(drafted)
    tokens = sum(len(text) for text in plain.values())
    return Verification(len(plain), len(plain) - len(found), tokens, *counts, plan, found)


def _check(
    prompts: Sequence[tuple[str, Prompt]], sampling: SamplingParams, options: OpenOptions
) -> None:
    if not prompts:
        raise InputError("no prompts to verify with: give at least one")
    if options.draft == "none":
        raise InputError("--draft none is what verify compares with: choose another drafter")
    accept = rule(options.accept or GumbelCoupling.name)
    # A lossy rule may be looked at: how many texts it changes is a fair question.
    if accept.lossless and not isinstance(accept, GumbelCoupling):
        raise InputError(
            f"verify compares texts, and --accept {accept.name} promises their distribution "
            f"only: choose {GumbelCoupling.name} or {SampleAndMatch.name}"
        )
    changed = sampling.filtered or sampling.penalised or sampling.logit_bias
    if sampling.seed is None or changed:
        raise InputError("verify samples with a temperature and a seed: give both, and no more")


class _Progress:
    """Counts texts for whoever listens."""

    def __init__(self, listener: OnText | None, total: int) -> None:
        self._listener = listener
        self._total = total
        self._done = 0

    def step(self) -> None:
        self._done += 1
        if self._listener is not None:
            self._listener(self._done, self._total)


def _texts(
    pipeline: Pipeline,
    prompts: Sequence[tuple[str, Prompt]],
    modes: dict[str, GenerateOptions],
    progress: _Progress,
) -> tuple[Texts, tuple[int, int]]:
    """Token ids by (mode, prompt number); drafted and accepted tokens in all."""
    texts: Texts = {}
    drafted = accepted = 0
    for mode, options in modes.items():
        for number, (_, prompt) in enumerate(prompts):
            result = pipeline.generate(prompt, options)
            texts[mode, number] = result.token_ids
            drafted += result.metrics.drafted_tokens
            accepted += result.metrics.accepted_tokens
            progress.step()
    return texts, (drafted, accepted)


class _Comparison:
    """Finds first divergences and asks how close the two tokens were."""

    def __init__(
        self,
        pipeline: Pipeline,
        prompts: Sequence[tuple[str, Prompt]],
        modes: dict[str, GenerateOptions],
        plain: Texts,
    ) -> None:
        self._model = pipeline.target
        self._names = [name for name, _ in prompts]
        encode = pipeline.tokenizer.encode
        self._prompts = [encode(p) if isinstance(p, str) else list(p) for _, p in prompts]
        self._modes = modes
        self._plain = plain
        self._changes: dict[int, FloatArray] = {}

    def divergences(self, drafted: Texts) -> list[Divergence]:
        """One for each pair that differs."""
        return [
            self._divergence(key, drafted[key])
            for key, text in self._plain.items()
            if text != drafted[key]
        ]

    def _divergence(self, key: tuple[str, int], other: list[int]) -> Divergence:
        mode, number = key
        text = self._plain[key]
        place = _first_difference(text, other)
        ours = text[place] if place < len(text) else None
        theirs = other[place] if place < len(other) else None
        params = self._modes[mode].sampling
        scale = 1.0 if params.greedy else 1 / params.temperature
        tolerance = scale * self._tolerance(number)
        gap = None
        if ours is not None and theirs is not None:
            row = replay(self._model, self._prompts[number], text[: place + 1], 1)[place]
            gap = scale * float(row[ours] - row[theirs])
            if not params.greedy:
                noise = Streams(params.seed or 0).gumbel_of(
                    len(self._prompts[number]) + place,
                    np.array([ours, theirs], dtype=np.int64),
                    Purpose.TARGET,
                )
                gap += float(noise[0] - noise[1])
            gap = abs(gap)
        near = gap is not None and gap <= tolerance
        name = self._names[number]
        return Divergence(mode, name, place, ours, theirs, gap, tolerance, near)

    def _tolerance(self, number: int) -> float:
        """Of the gaps on the prompts other than this one (or on it, if it is alone)."""
        others = [n for n in range(len(self._prompts)) if n != number] or [number]
        for other in others[:SAMPLE]:
            if other not in self._changes:
                self._changes[other] = width_changes(
                    self._model, self._prompts[other], self._plain["greedy", other]
                )
        pooled = np.concatenate([self._changes[other] for other in others[:SAMPLE]])
        return float(np.percentile(pooled, PERCENTILE))


def _first_difference(one: Sequence[int], two: Sequence[int]) -> int:
    pairs = enumerate(zip(one, two, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(two)))
