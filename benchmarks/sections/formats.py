"""Compares formats of one model: equal text, costs, and llama.cpp's own programs.

Sections of the suite (``benchmarks.suite``). They need the extra ``gguf``; ``llamacpp_loop``
also needs ``llama-bench``, which ``make peers`` builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.bundles import GROWN, Suite
from benchmarks.sections import bare_llamacpp
from benchmarks.workloads import heldout_tokens, perplexity
from edgedec.compare.interleaved import facts
from edgedec.compare.records import Recorder, Row
from edgedec.decoding import policy
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.device import available_cores
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Generation, Pipeline

DRAFT_WEIGHTS = "q8_0"
TARGETS = ("q4_0", "q4_k_m")
_TOKENS = 128
_PERPLEXITY_TOKENS = 4096


def identity_formats(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare greedy texts of fp32 in every format, plain and speculative."""
    bundles, threads = suite.bundles, suite.threads
    onnx, draft = bundles.bundle("fp32"), bundles.gguf("draft", "f32")
    plain = OpenOptions(plan="none", drafter="none", threads=threads)
    speculative = OpenOptions(plan="none", draft=draft, threads=threads, kv="f32", max_context=1024)
    models = {
        "onnx plain": (onnx, plain),
        "onnx speculative": (onnx, OpenOptions(plan="none", threads=threads)),
        "gguf plain": (bundles.gguf("target", "f32"), plain.changed(kv="f32", max_context=1024)),
        "gguf speculative": (bundles.gguf("target", "f32"), speculative),
    }
    with suppress(RuntimeUnavailable):  # this export needs torch
        optimum = bundles.alone("optimum", "target", "fp32")
        models["optimum plain"] = (optimum, plain)
        models["optimum speculative"] = (optimum, plain.changed(drafter="lookup"))
    texts: dict[str, list[list[int]]] = {}
    for name, (path, options) in models.items():
        with Pipeline.open(path, options) as pipeline:
            encoded = [pipeline.tokenizer.encode(str(text)) for _, text in suite.code()]
            texts[name] = [_generate(pipeline, tokens).token_ids for tokens in encoded]
    reference, *others = texts
    return recorder.table(
        {
            "reference": reference,
            "model": name,
            "texts": len(texts[name]),
            "identical": sum(a == b for a, b in zip(texts[reference], texts[name], strict=True)),
        }
        for name in others
    )


def llamacpp_loop(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare plain decoding through our session with llama.cpp's own loop, interleaved."""
    threads = suite.threads or available_cores()
    rows = []
    for weights in TARGETS:
        path = suite.bundles.gguf("target", weights, GROWN)
        loop = bare_llamacpp.Loop(path, threads)
        # On, as in the loop; our default, chosen for verification, is off.
        options = OpenOptions(
            plan="none", drafter="none", threads=threads, max_context=1024, flash_attention=True
        )
        with Pipeline.open(path, options) as pipeline:
            ratios, ours_s, same = [], [], 0
            for name, prompt in suite.code():
                tokens = pipeline.tokenizer.encode(str(prompt))
                ours = _generate(pipeline, tokens)
                theirs, seconds = loop.run(tokens, _TOKENS)
                again = _generate(pipeline, tokens)
                own = min(ours.metrics.tpot_s or 0, again.metrics.tpot_s or 0)
                _, second = loop.run(tokens, _TOKENS)
                bare = min(seconds, second) / (_TOKENS - 1)
                same += theirs == ours.token_ids
                ratios.append(own / bare)
                ours_s.append(own)
                recorder.add(kind="loop", weights=weights, prompt=name, ours_s=own, bare_s=bare)
        loop.close()
        rows.append(
            {
                "weights": weights,
                "ours_over_bare": median(ratios),
                "worst": max(ratios),
                "ours_tokens_per_second": len(ours_s) / sum(ours_s),
                "llama_bench_tokens_per_second": bare_llamacpp.tokens_per_second(
                    suite.bundles.work, path, threads
                ),
                "same_text": same,
                "prompts": len(ratios),
            }
        )
        recorder.add(kind="summary", **rows[-1])
    return rows


@dataclass(frozen=True, slots=True)
class _Contender:
    """A grown target in one format, with the draft in the same."""

    name: str
    path: Path
    draft: Path | None

    def options(self, draft: str, threads: int | None) -> OpenOptions:
        return OpenOptions(
            plan="none",
            drafter=draft, draft=self.draft, threads=threads, max_context=1024,
            batch_invariant=False,
        )  # fmt: skip


def formats(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare ONNX int4 and GGUF q4 of one model: size, perplexity, T(n), best speed."""
    bundles = suite.bundles
    draft = bundles.gguf("draft", DRAFT_WEIGHTS)
    contenders = [
        _Contender("onnx int4", bundles.bundle("int4", target=GROWN), None),
        *(_Contender(f"gguf {w}", bundles.gguf("target", w, GROWN), draft) for w in TARGETS),
    ]
    runs: dict[tuple[str, str], list[float]] = {}
    rows = {}
    with ExitStack() as stack:
        opened = {
            (c.name, drafter): stack.enter_context(
                Pipeline.open(c.path, c.options(drafter, suite.threads))
            )
            for c in contenders
            for drafter in ("none", "auto")
        }
        for contender in contenders:
            pipeline = opened[contender.name, "none"]
            rows[contender.name] = _measured(contender.name, pipeline)
        for name, prompt in suite.code():
            for key, pipeline in opened.items():
                run = _generate(pipeline, pipeline.tokenizer.encode(str(prompt)))
                runs.setdefault(key, []).append(run.metrics.tpot_s or 0.0)
                recorder.add(
                    kind="run", candidate=key[0], drafter=key[1], prompt=name, **facts(run)
                )
    for (name, drafter), seconds in runs.items():
        kind = "plain" if drafter == "none" else "speculative"
        rows[name][f"{kind}_tokens_per_second"] = len(seconds) / sum(seconds)
    return recorder.table(rows.values())


def _measured(name: str, pipeline: Pipeline) -> Row:
    session = pipeline.target.open(256)
    try:
        curve = policy.calibrate(session, widths=tuple(range(1, 17)), budget_s=20.0)
    finally:
        session.close()
    tokens = heldout_tokens(pipeline.tokenizer, _PERPLEXITY_TOKENS)
    return {
        "format": name,
        "size_bytes": sum(path.stat().st_size for path in pipeline.pair.target.files.values()),
        "perplexity": perplexity(pipeline.target, tokens),
        "one_row_ms": curve.at(1) * 1e3,
        "rows_over_one": {n: round(curve.at(n) / curve.at(1), 3) for n in curve.widths},
    }


def _generate(pipeline: Pipeline, tokens: Sequence[int]) -> Generation:
    return pipeline.generate(tokens, GenerateOptions(_TOKENS, ignore_eos=True))


SECTIONS = (identity_formats, llamacpp_loop, formats)
