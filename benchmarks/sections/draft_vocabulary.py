"""Measures drafts whose head keeps some of the tokens.

The draft is grown so that half of it is its head: few rows that are wide, where published models
have many narrow ones. All 4,096 tokens are real ones, so that what trimming loses is real as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import mean

from benchmarks.bundles import Suite
from edgedec.bundle import Bundle
from edgedec.compare.drafters import PLAIN
from edgedec.compare.interleaved import Comparison, compare
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.sampling import SamplingParams
from edgedec.export.options import FULL
from edgedec.pipeline import GenerateOptions, Pipeline

_TARGET, _DRAFT = "target-35m", "draft-half-head"
_COUNTS = (FULL, 1024, 1536, 2048, 3072)
_TOKENS, _LENGTH = 96, 2
_SAMPLINGS = (SamplingParams(), SamplingParams(temperature=0.7, seed=0))


def draft_vocabulary(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare numbers of tokens that the draft's head keeps, greedy and at temperature 0.7."""
    bundles = {str(count): suite.bundles.trimmed(_TARGET, _DRAFT, count) for count in _COUNTS}
    rows: list[Row] = []
    with ExitStack() as stack:

        def opened(name: str, drafter: str) -> Pipeline:
            # A fixed length, so that all draft alike where drafting hardly pays.
            options = suite.options(drafter=drafter, draft_length=_LENGTH)
            if drafter == "none":
                options = suite.plain()
            return stack.enter_context(Pipeline.open(bundles[name], options))

        entrants = {
            PLAIN: opened(FULL, "none"),
            **{name: opened(name, "model") for name in bundles},
        }
        for sampling in _SAMPLINGS:
            recorder.add(kind="case", T=sampling.temperature)  # of the runs that follow
            options = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
            found = compare(entrants, suite.code(), options, recorder)
            rows += [{"T": sampling.temperature, **row} for row in _rows(found, bundles, recorder)]
    return recorder.table(rows, "draft_vocabulary")


def _rows(found: Comparison, bundles: dict[str, Path], recorder: Recorder) -> Iterator[Row]:
    """Return each draft's figures, and its speed relative to that of the fastest."""
    last = recorder.runs[-len(found.tpot_s) * len(found.prompts) :]
    fastest = max(found.speedup(name) for name in bundles)
    for name, bundle in bundles.items():
        runs = [run for run in last if run["candidate"] == name]
        drafted = sum(run["drafted_tokens"] for run in runs)
        opened = Bundle.open(bundle)
        assert opened.draft is not None
        variant = opened.draft.variants["onnx"]
        yield {
            "asked": name,
            "draft_vocab": variant.draft_vocab or opened.draft.dims["vocab_used"],
            "draft_mb": sum(opened.files[file].size_bytes for file in variant.files) / 1e6,
            "drafted_ms": 1000 * sum(run["draft_s"] for run in runs) / max(1, drafted),
            "acceptance_rate": sum(run["accepted_tokens"] for run in runs) / max(1, drafted),
            "block_efficiency": mean(run["block_efficiency"] for run in runs),
            **found.summary(name),
            "of_the_best": found.speedup(name) / fastest,
        }
