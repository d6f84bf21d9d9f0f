"""Measures a round's cost outside the models: drafter, sampler, rule, stop rule, commit, policy.

Both models are replaced by sessions that return precomputed logits at once, so a round's time is
all overhead. Draft and target agree with a given probability.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import BinaryIO

import numpy as np

from benchmarks.bundles import Suite
from edgedec.compare import side_by_side
from edgedec.compare.records import Recorder
from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import DraftPolicy, Fixed, MeasuredCost, RoundRecord
from edgedec.decoding.request import Request
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import TokenTree
from edgedec.errors import StateError

_SHEETS = 32
# Pass times of a half-billion decoder and of a small draft, for policies that weigh them.
_CURVE, _DRAFT_S = side_by_side.curve(20e-3), 2e-3


class InstantModel:
    """Precomputed rows: row r at length n is sheet ``(n + r)``, so two instances agree."""

    def __init__(self, vocab_size: int, *, agreement: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(0)
        # Probabilities as in a language model: about rank ** -1.5, 2.6 nats of entropy.
        ranks = rng.permuted(np.tile(np.arange(1, vocab_size + 1), (_SHEETS, 1)), axis=1)
        logits = -1.5 * np.log(ranks).astype(np.float32)
        off = np.random.default_rng(seed).random(_SHEETS) > agreement
        logits[off] = np.roll(logits[off], 1, axis=1)
        # Stored twice, so that any run of rows is one view and no pass copies anything.
        self.logits = np.concatenate([logits, logits])
        self.top_ids = np.argsort(-self.logits, axis=1, kind="stable")[:, :8]
        self.top_logits = np.take_along_axis(self.logits, self.top_ids, axis=1)
        self.info = ModelInfo("instant", vocab_size, (), 1 << 20, 1, 0)
        self.capabilities = Capabilities()

    def open(self, capacity: int) -> InstantSession:
        """Return a session that only counts."""
        return InstantSession(self, capacity)

    def close(self) -> None:
        """Do nothing: nothing is held."""


class InstantSession:
    """A session without contents."""

    def __init__(self, model: InstantModel, capacity: int) -> None:
        self._model = model
        self.capacity = capacity
        self.length = 0

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Count the tokens."""
        self.length += len(tokens)

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Return views of precomputed rows."""
        first = (self.length + start) % _SHEETS
        rows = slice(first, first + len(tree) - start)
        model = self._model
        return Pass(start, model.top_ids[rows], model.top_logits[rows], model.logits[rows])

    def commit(self, path: Sequence[int]) -> None:
        """Count the committed tokens."""
        self.length += len(path)

    def rollback(self, length: int) -> None:
        """Set the length."""
        self.length = length

    def fork(self, length: int) -> InstantSession:
        """Return a session of this length."""
        other = self._model.open(self.capacity)
        other.length = length
        return other

    def save(self, file: BinaryIO) -> None:
        """Do nothing."""
        raise StateError("a session without a cache cannot be saved")

    def load(self, file: BinaryIO) -> None:
        """Do nothing."""
        raise StateError("a session without a cache cannot be loaded")

    def interrupt(self) -> None:
        """Do nothing: passes take no time."""

    def close(self) -> None:
        """Do nothing: nothing is held."""


class _OfADevice(MeasuredCost):
    """A policy that observes a device's pass times, since passes here take none."""

    def __init__(self) -> None:
        super().__init__(_CURVE, _DRAFT_S)

    def observe(self, record: RoundRecord) -> None:
        """Add the time that the passes would have taken."""
        target_s, draft_s = _CURVE.at(record.rows), _DRAFT_S * record.drafted
        total_s = record.total_s + target_s + draft_s
        draft_s += record.draft_s
        super().observe(record._replace(target_s=target_s, draft_s=draft_s, total_s=total_s))


POLICIES: dict[str, Callable[[], DraftPolicy]] = {"fixed": lambda: Fixed(4), "measured": _OfADevice}


def round_cost_us(
    vocab_size: int,
    *,
    drafter: str = "model",
    policy: str = "fixed",
    sampling: SamplingParams | None = None,
    rounds: int = 400,
) -> tuple[list[float], float]:
    """Return the microseconds of each round with 80% agreement, including the policy's own time.

    Returns:
        The times, and the mean number of drafted tokens.

    """
    target, draft = _model(vocab_size, 1.0), _model(vocab_size, 0.8)
    rule = acceptance.rule("coupling")
    prompt, most = list(range(16)), rounds * 17
    sampler = Sampler(sampling or SamplingParams(), vocab_size, prompt, coupled=rule.coupled)
    parts = drafting.create(drafter, DrafterParts(vocab_size, draft.open(16 + most)))
    engine = Engine(target.open(16 + most), parts, POLICIES[policy](), rule)
    metrics, micros, last = Metrics(), [], perf_counter()
    stop = StopRule(eos_ids=(), max_new_tokens=most)
    for _ in engine.run(Request(prompt, sampler, stop), metrics):
        now = perf_counter()
        micros.append((now - last) * 1e6)
        last = now
        if len(micros) == rounds:
            break
    return micros[rounds // 10 :], metrics.drafted_tokens / len(micros)


@functools.lru_cache(maxsize=2)
def _model(vocab_size: int, agreement: float) -> InstantModel:
    return InstantModel(vocab_size, agreement=agreement, seed=round(10 * agreement))


def engine(suite: Suite, recorder: Recorder) -> list[dict[str, object]]:
    """Measure the cost of a round outside the models' passes, by vocabulary and drafter."""
    rows: list[dict[str, object]] = []
    for vocab_size in (4096, 32_000, 128_256, 151_936, 262_144):
        for name, sampling in (
            ("greedy", SamplingParams()),
            ("temperature 0.8", SamplingParams(temperature=0.8, seed=1)),
            ("top-p 0.9", SamplingParams(temperature=0.8, top_p=0.9, seed=1)),
            ("top-k 40", SamplingParams(temperature=0.8, top_k=40, seed=1)),
        ):
            for drafter, policy in (("none", "fixed"), ("model", "fixed"), ("model", "measured")):
                cost = round_cost_us(vocab_size, drafter=drafter, policy=policy, sampling=sampling)
                rows.append(_add(recorder, cost, vocab_size, drafter, policy, name))
    for drafter in drafting.built_in():
        # Neither model here has a tokenizer, so drafting by text is impossible.
        if drafter not in ("none", "model") and not drafting.info(drafter).by_text:
            cost = round_cost_us(4096, drafter=drafter)
            rows.append(_add(recorder, cost, 4096, drafter, "fixed", "greedy"))
    return rows


def _add(
    recorder: Recorder,
    cost: tuple[list[float], float],
    vocab_size: int,
    drafter: str,
    policy: str,
    name: str,
) -> dict[str, object]:
    micros, drafted = cost
    row: dict[str, object] = {
        "vocab_size": vocab_size,
        "drafter": drafter,
        "policy": policy,
        "sampling": name,
        "drafted": drafted,
        "median_us": median(micros),
        "p90_us": sorted(micros)[int(len(micros) * 0.9)],
        "rounds": len(micros),
    }
    recorder.add(kind="round", **row)
    return row
