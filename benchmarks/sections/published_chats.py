"""Measures whether ``auto`` is ever slower than plain decoding, on a model's own chats by category.

Plain decoding at its fastest, plain decoding under the settings that ``auto`` opens the target with
(what exact text costs), and ``auto`` without a draft model decode each prompt in turn in one
process, opened anew each time, since a pipeline learns from what it wrote. A prompt's figure is the
ratio of medians, of the time after the first token.

``python -m benchmarks published_chats --preset published --prompts 2`` takes two prompts of each
category, about eight minutes a model on two cores; ``--target FILE.gguf`` measures another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.bundles import Suite, Unusable
from benchmarks.models import published as models
from benchmarks.race import texts
from edgedec._support.model_path import is_gguf
from edgedec.compare.drafters import PLAIN, opened
from edgedec.compare.interleaved import facts
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.sampling import SamplingParams
from edgedec.gguf import GgufHeader
from edgedec.gguf.tokenizer import load_tokenizer
from edgedec.pipeline import GenerateOptions, Generation

AUTO, EXACT = "auto", "plain, exact"
REPEATS = 3
_TOKENS, _CONTEXT, _LONGEST = 64, 1536, 1280
_SAMPLING = (0.7, 0.95)
# Seconds per token, of a category's prompt and a way, one for each turn.
Seconds = dict[tuple[str, str], dict[str, list[float]]]
_WARM = "List three things that float on water, and say why each of them does."


def published_chats(suite: Suite, recorder: Recorder) -> list[Row]:
    """Measure ``auto`` against plain decoding on a GGUF file's model, by category of text."""
    file = suite.bundles.source("target")
    if not is_gguf(file):
        raise Unusable(f"takes a GGUF file, and {file} is none: give --target or --preset")
    tokenizer = load_tokenizer(GgufHeader.read(file))
    try:
        prompts = texts.categories(suite.prompts, tokenizer, suite.file, _LONGEST)
    except texts.NoTexts as reason:
        raise Unusable(str(reason)) from None
    warm = tokenizer.encode(_WARM)
    known = {model.file: model.sampling for model in models.MODELS.values()}
    temperature, top_p = known.get(file.name, _SAMPLING)
    samplings = (SamplingParams(), SamplingParams(temperature=temperature, top_p=top_p, seed=1))
    rows: list[Row] = []
    for form, path in _models(suite, file).items():
        for sampling in samplings:
            seconds: Seconds = {}
            for text, way, done in _decoded(suite, path, prompts, sampling, warm):
                seconds.setdefault((text.kind, text.name), {}).setdefault(way, []).append(
                    done.metrics.tpot_s
                )
                recorder.add(kind="run", form=form, way=way, text=text.kind, prompt=text.name,
                             prompt_tokens=len(text.ids), temperature=sampling.temperature,
                             **facts(done))  # fmt: skip
            found = summaries(seconds)
            rows += [{"form": form, "temperature": sampling.temperature, **row} for row in found]
    return recorder.table(rows)


def summaries(seconds: Seconds) -> list[Row]:
    """Return the speed over plain decoding of each category, and of all: mean and worst prompt."""
    kinds: dict[str, list[dict[str, float]]] = {}
    for (kind, _), ways in seconds.items():
        plain, exact, auto = (median(ways[way]) for way in (PLAIN, EXACT, AUTO))
        over = {AUTO: plain / auto, EXACT: plain / exact, "auto over exact": exact / auto}
        kinds.setdefault(kind, []).append(over)
    every = [one for some in kinds.values() for one in some]
    return [
        {
            "text": kind, "prompts": len(some), "mean": mean(one[AUTO] for one in some),
            "worst": min(one[AUTO] for one in some), EXACT: mean(one[EXACT] for one in some),
            "drafts alone": mean(one["auto over exact"] for one in some),
            "drafts alone, worst": min(one["auto over exact"] for one in some),
        }
        for kind, some in (*kinds.items(), ("all", every))
    ]  # fmt: skip


def _models(suite: Suite, file: Path) -> Mapping[str, Path]:
    """Return the file, and what is made of it, by form."""
    bundles = suite.bundles
    made = {
        weights: bundles.alone("onnx", "target", weights, calibration="none")
        for weights in ("int8", "auto")
    }
    return {"file": file, **made}


def _decoded(
    suite: Suite,
    path: Path,
    prompts: Sequence[texts.Text],
    sampling: SamplingParams,
    warm: Sequence[int],
) -> Iterator[tuple[texts.Text, str, Generation]]:
    """Yield each text, decoded each way in turn."""
    common: dict[str, Any] = {"context_limit": _CONTEXT}
    ways = {
        PLAIN: suite.options(drafter="none", batch_invariant=False, **common),
        EXACT: suite.options(drafter="none", **common),
        AUTO: suite.options(**common),
    }
    options = GenerateOptions(_TOKENS, sampling, ignore_eos=True)
    for turn in range(REPEATS):
        # What is opened first is mostly slower.
        order = [*ways][turn % len(ways) :] + [*ways][: turn % len(ways)]
        with opened(path, {way: ways[way] for way in order}) as pipelines:
            for pipeline in pipelines.values():
                pipeline.generate(warm, options)
            for index, text in enumerate(prompts):
                for way in order[:: -1 if index % 2 else 1]:
                    pipelines[way].forget()
                    yield text, way, pipelines[way].generate(text.ids, options)
