"""Measures the trained pair itself: prediction, repetition, other vocabularies."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.bundles import Suite
from benchmarks.workloads import heldout_tokens, perplexity
from edgedec.compare.interleaved import facts
from edgedec.compare.records import Recorder, Row
from edgedec.compare.side_by_side import repeated_share
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline

_TOKENS = 128
_PERPLEXITY_TOKENS = 4096


def pair(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure perplexity on held-out code and repetition of greedy texts, both models in fp32."""
    rows = []
    for role in ("target", "draft"):
        options = OpenOptions(drafter="none", threads=suite.threads, plan="none")
        with Pipeline.open(suite.bundles.alone("onnx", role, "fp32"), options) as pipeline:
            shares = []
            for name, prompt in suite.code():
                run = pipeline.generate(prompt, GenerateOptions(_TOKENS, ignore_eos=True))
                shares.append(repeated_share(run.token_ids))
                recorder.add(kind="text", role=role, prompt=name, repeated=shares[-1])
            tokens = heldout_tokens(pipeline.tokenizer, _PERPLEXITY_TOKENS)
            rows.append(
                {
                    "role": role,
                    "perplexity": perplexity(pipeline.target, tokens),
                    "repeated_8_grams": sum(shares) / len(shares),
                    "texts": len(shares),
                }
            )
            recorder.add(kind="summary", **rows[-1])
    return rows


def vocabularies(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare greedy drafts of four by the pair's own draft and by one with another tokenizer."""
    other = suite.bundles.alone("onnx", "draft_bpe2048", "int4")
    return _drafts_of_four(
        suite,
        recorder,
        {
            "own vocabulary": OpenOptions(drafter="model"),
            "2,048 pieces, by tokens": OpenOptions(drafter="model", draft=other),
            "2,048 pieces, by text": OpenOptions(drafter="strings", draft=other),
        },
    )


def draft_rounding(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare greedy drafts of four by the draft rounded in several ways."""
    plain = suite.bundles.alone("onnx", "draft", "int4", block_size=32)
    own = suite.bundles.alone("onnx", "draft", "int4")
    source = suite.bundles.alone("onnx", "draft", "fp16")
    return _drafts_of_four(
        suite,
        recorder,
        {
            "fp16": OpenOptions(drafter="model", draft=source),
            "rounded plainly, blocks of 32": OpenOptions(drafter="model", draft=plain),
            "calibrated on its own text": OpenOptions(drafter="model", draft=own),
            "calibrated on the target's text": OpenOptions(drafter="model"),
        },
    )


def _drafts_of_four(
    suite: Suite, recorder: Recorder, entrants: Mapping[str, OpenOptions]
) -> list[Row]:
    """Return the acceptance of the pair's int4 bundle with each draft."""
    rows = []
    for name, chosen in entrants.items():
        with Pipeline.open(
            suite.bundles.bundle("int4"), chosen, draft_length=4, threads=suite.threads, plan="none"
        ) as pipeline:
            emitted = passes = drafted = accepted = 0
            for label, prompt in suite.code():
                run = pipeline.generate(prompt, GenerateOptions(_TOKENS, ignore_eos=True))
                recorder.add(kind="run", candidate=name, prompt=label, **facts(run))
                emitted += run.metrics.emitted
                passes += run.metrics.target_passes
                drafted += run.metrics.drafted_tokens
                accepted += run.metrics.accepted_tokens
        rows.append(
            {
                "draft": name,
                "acceptance_rate": accepted / max(1, drafted),
                "block_efficiency": emitted / passes,
            }
        )
        recorder.add(kind="summary", **rows[-1])
    return rows


SECTIONS = (pair, vocabularies, draft_rounding)
