"""Cost of a round outside the models: drafter, sampler, rule, stop rule, commit, policy.

Both models are replaced by sessions that answer at once with logits made beforehand, so
whatever time a round takes is ours. Draft and target agree with a given probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import BinaryIO

import numpy as np

from edgedec.bench.records import Recorder
from edgedec.decoding import acceptance, drafting
from edgedec.decoding.drafting.base import DrafterParts
from edgedec.decoding.engine import Engine, Request
from edgedec.decoding.metrics import Metrics
from edgedec.decoding.policy import Fixed, RoundRecord
from edgedec.decoding.sampling import Sampler, SamplingParams
from edgedec.decoding.session import Capabilities, ModelInfo, OnChunk, Pass, Want
from edgedec.decoding.stopping import StopRule
from edgedec.decoding.tree import TokenTree
from edgedec.errors import StateError

_SHEETS = 64


class InstantModel:
    """Precomputed rows: row r at length n is sheet ``(n + r)``, so two instances agree."""

    def __init__(self, vocab_size: int, *, agreement: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(0)
        logits = rng.standard_normal((_SHEETS, vocab_size)).astype(np.float32) * 3
        off = np.random.default_rng(seed).random(_SHEETS) > agreement
        logits[off] = np.roll(logits[off], 1, axis=1)
        # Twice over, so that any run of rows is one view and no pass copies anything.
        self.logits = np.concatenate([logits, logits])
        self.top_ids = np.argsort(-self.logits, axis=1, kind="stable")[:, :8]
        self.top_logits = np.take_along_axis(self.logits, self.top_ids, axis=1)
        self.info = ModelInfo("instant", vocab_size, (), 1 << 20, 1, 0)
        self.capabilities = Capabilities()

    def open(self, capacity: int) -> InstantSession:
        """A session that only counts."""
        return InstantSession(self, capacity)

    def close(self) -> None:
        """Nothing to give back."""


class InstantSession:
    """A cache without contents."""

    def __init__(self, model: InstantModel, capacity: int) -> None:
        self._model = model
        self.capacity = capacity
        self.length = 0

    def prefill(self, tokens: Sequence[int], on_chunk: OnChunk | None = None) -> None:
        """Count."""
        self.length += len(tokens)

    def forward(self, tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
        """Views of rows made beforehand."""
        first = (self.length + start) % _SHEETS
        rows = slice(first, first + len(tree) - start)
        model = self._model
        return Pass(start, model.top_ids[rows], model.top_logits[rows], model.logits[rows])

    def commit(self, path: Sequence[int]) -> None:
        """Count."""
        self.length += len(path)

    def rollback(self, length: int) -> None:
        """Count."""
        self.length = length

    def fork(self, length: int) -> InstantSession:
        """Count."""
        other = self._model.open(self.capacity)
        other.length = length
        return other

    def save(self, file: BinaryIO) -> None:
        """Nothing to save."""
        raise StateError("a session without a cache cannot be saved")

    def load(self, file: BinaryIO) -> None:
        """Nothing was saved."""
        raise StateError("a session without a cache cannot be loaded")

    def interrupt(self) -> None:
        """Passes take no time."""

    def close(self) -> None:
        """Nothing to give back."""


def round_cost_us(
    vocab_size: int,
    *,
    drafter: str = "model",
    draft_length: int = 4,
    sampling: SamplingParams | None = None,
    rounds: int = 400,
) -> list[float]:
    """Microseconds of each round, a chain of ``draft_length``, 80% agreement."""
    sampling = sampling or SamplingParams()
    target = InstantModel(vocab_size)
    draft = InstantModel(vocab_size, agreement=0.8, seed=1)
    rule = acceptance.rule("coupling")
    prompt = list(range(16))
    capacity = 16 + rounds * (draft_length + 2)
    sampler = Sampler(sampling, vocab_size, prompt, coupled=rule.coupled)
    parts = drafting.create(drafter, DrafterParts(vocab_size, draft.open(capacity)))
    engine = Engine(target.open(capacity), parts, Fixed(draft_length), rule)
    stop = StopRule(eos_ids=(), max_new_tokens=rounds * (draft_length + 1))
    metrics = _Timed()
    for _ in engine.run(Request(prompt, sampler, stop), metrics):
        if metrics.target_passes >= rounds:
            break
    return metrics.micros[rounds // 10 :]


class _Timed(Metrics):
    """Metrics that also keep every round's time."""

    def __init__(self) -> None:
        super().__init__()
        self.micros: list[float] = []

    def observe(self, record: RoundRecord, total_s: float, lone_row_s: float | None = None) -> None:
        """Add one round."""
        super().observe(record, total_s, lone_row_s)
        self.micros.append(total_s * 1e6)


def run(recorder: Recorder) -> list[dict[str, object]]:
    """The draft model's chain under three samplings and two vocabularies; each other drafter."""
    rows: list[dict[str, object]] = []
    for vocab_size in (4096, 32768):
        for name, sampling in (
            ("greedy", SamplingParams()),
            ("temperature 0.8", SamplingParams(temperature=0.8, seed=1)),
            ("top-p 0.9", SamplingParams(temperature=0.8, top_p=0.9, seed=1)),
        ):
            rows.append(_row(recorder, vocab_size, "model", name, sampling))
    for drafter in drafting.built_in():
        # Neither model here has a tokenizer, so a drafter that drafts by text has nothing to do.
        if drafter != "model" and not drafting.info(drafter).by_text:
            rows.append(_row(recorder, 4096, drafter, "greedy", SamplingParams()))
    return rows


def _row(
    recorder: Recorder, vocab_size: int, drafter: str, name: str, sampling: SamplingParams
) -> dict[str, object]:
    micros = sorted(round_cost_us(vocab_size, drafter=drafter, sampling=sampling))
    row: dict[str, object] = {
        "vocab_size": vocab_size,
        "drafter": drafter,
        "sampling": name,
        "median_us": median(micros),
        "p90_us": micros[int(len(micros) * 0.9)],
        "rounds": len(micros),
    }
    recorder.add(kind="round", **row)
    return row
