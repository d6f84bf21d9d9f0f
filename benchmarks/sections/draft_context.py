"""Measures drafts whose context window covers only the beginning and the end of a long text."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.bundles import Suite
from benchmarks.workloads import long_text
from edgedec.compare.drafters import PLAIN
from edgedec.compare.interleaved import compare
from edgedec.compare.records import Recorder
from edgedec.pipeline import GenerateOptions, Pipeline, Prompt

_PROMPT_TOKENS = 2000
_CONTEXTS = (None, 2048, 512, 256, 128)


def draft_context(suite: Suite, recorder: Recorder) -> list[dict[str, Any]]:
    """Draft four tokens per round after 2,000 tokens, of which the draft model sees a part."""
    drafts = {
        "own vocabulary": None,
        "2,048 pieces": suite.bundles.alone("onnx", "draft_bpe2048", "int4"),
    }
    rows = []
    for name, draft in drafts.items():
        recorder.add(kind="pair", draft=name)  # of the records up to the next one
        rows += [{"draft": name, **row} for row in _of_pair(suite, draft, recorder)]
    return rows


def _of_pair(suite: Suite, draft: Path | None, recorder: Recorder) -> list[dict[str, Any]]:
    bundle = suite.bundles.bundle("int4")
    options = GenerateOptions(128, ignore_eos=True)
    first = len(recorder.runs)
    with ExitStack() as stack:

        def opened(**chosen: Any) -> Pipeline:
            return stack.enter_context(Pipeline.open(bundle, suite.options(**chosen)))

        pipelines = {PLAIN: opened(drafter="none", batch_invariant=False)}
        for tokens in _CONTEXTS:
            pipelines[str(tokens or "all")] = opened(
                drafter="model", draft=draft, draft_length=4, draft_context=tokens
            )
        text = long_text(pipelines[PLAIN].tokenizer, _PROMPT_TOKENS)
        prompts: list[tuple[str, Prompt]] = [
            (name, [*text[number:], *pipelines[PLAIN].tokenizer.encode(str(prompt))])
            for number, (name, prompt) in enumerate(suite.code())
        ]
        found = compare(pipelines, prompts, options, recorder)
    runs = recorder.runs[first:]
    return [
        {
            "draft_context": name,
            "acceptance_rate": mean(
                run["acceptance_rate"] for run in runs if run["candidate"] == name
            ),
            **found.summary(name),
        }
        for name in pipelines
        if name != PLAIN
    ]
