"""Compares graphs of static shape with the dynamic graph of the same model, on the processor.

It reports for each form its divergence from the source, pass times by rows, and its texts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.bundles import GROWN, Suite, digest
from benchmarks.pass_times import pass_times
from benchmarks.workloads import heldout_tokens
from edgedec.bundle.manifest import SCHEMA_VERSION
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.session import Model
from edgedec.hardware.resident import release_free, resident_bytes
from edgedec.loading.build import OpenOptions
from edgedec.pipeline import GenerateOptions, Pipeline

FORMS = ("onnx", "onnx-static")
_ROWS = (1, 2, 3, 4, 5, 8, 12, 16)
_CONTEXTS = (512, 2048)
_READ, _TURNS, _TOKENS = 128, 15, 64


def static_shapes(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare graphs of static shape with the dynamic one: parity, cost by rows, texts."""
    rows = [*_parity(suite, recorder), *_texts(suite, recorder)]
    for weights, preset, context in (
        ("fp32", None, _CONTEXTS[0]),
        ("int4", None, _CONTEXTS[0]),
        ("int4", None, _CONTEXTS[1]),
        ("int4", GROWN, _CONTEXTS[0]),
    ):
        rows += _costs(suite, recorder, weights, preset, context)
    return rows


def _bundle(suite: Suite, weights: str, preset: str | None, context: int) -> Path:
    """Return a bundle with the target in both forms."""
    from edgedec.export import ExportOptions, export_bundle

    source = suite.bundles.checkpoint("target", preset)
    name = f"static-{weights}-{context}-{preset or 'asis'}-{digest(source)}"
    out = suite.bundles.work / f"schema-{SCHEMA_VERSION}" / name
    if not (out / "manifest.json").is_file():
        export_bundle(
            ExportOptions(
                source,
                out,
                None if preset else suite.bundles.checkpoint("draft"),
                formats=FORMS,
                weights=",".join(f"{form}={weights}" for form in FORMS),
                static_context=context,
                parity=False,
                calibration="none",
            )
        )
    return out


def _parity(suite: Suite, recorder: Recorder) -> list[Row]:
    """Export the target with each kind of weights, and compare it with its source."""
    from edgedec.export import ExportOptions, export_bundle

    rows = []
    plain = [(weights, None) for weights in ("fp32", "fp16", "int8", "int4")]
    for weights, activations in (*plain, ("int8", "int16"), ("int8", "int8")):
        options = ExportOptions(
            suite.bundles.checkpoint("target"),
            suite.bundles.work / "static-parity",
            formats=("onnx-static",),
            weights=weights,
            static_context=_CONTEXTS[0],
            static_activations=activations,
            calibration="self" if activations else "none",
            overwrite=True,
        )
        report = export_bundle(options)
        (model,) = report.models
        recorder.add(kind="export", seconds=report.seconds, **dataclasses.asdict(model))
        names = ("kl_nats", "top1", "fp32_layer_error")
        figures = {name: model.parity[name] for name in names}
        row: Row = {"weights": weights, "activations": activations, "bytes": model.size_bytes}
        rows.append({**row, **figures})
    return recorder.table(rows, "parity")


def _texts(suite: Suite, recorder: Recorder) -> list[Row]:
    """Count greedy texts that equal the dynamic graph's, plain and drafted."""
    rows = []
    asked = GenerateOptions(_TOKENS, ignore_eos=True)
    for weights in ("fp32", "int4"):
        bundle = _bundle(suite, weights, None, _CONTEXTS[0])
        texts: dict[tuple[str, str], list[list[int]]] = {}
        for form in FORMS:
            for draft in ("none", "model", "auto"):
                options = OpenOptions(
                    format=form, drafter=draft, plan="none", threads=suite.threads
                )
                with Pipeline.open(bundle, options) as pipeline:
                    texts[form, draft] = [
                        pipeline.generate(text, asked).token_ids for _, text in suite.code()
                    ]
        for (form, draft), found in texts.items():
            row: Row = {"weights": weights, "form": form, "draft": draft, "texts": len(found)}
            row["as_dynamic_plain"] = _same(found, texts["onnx", "none"])
            row["as_own_plain"] = _same(found, texts[form, "none"])
            rows.append(row)
    return recorder.table(rows, "texts")


def _same(texts: list[list[int]], others: list[list[int]]) -> int:
    return sum(one == other for one, other in zip(texts, others, strict=True))


def _costs(
    suite: Suite, recorder: Recorder, weights: str, preset: str | None, context: int
) -> list[Row]:
    """Measure passes of each width in both forms, in turn, after 128 tokens."""
    bundle = _bundle(suite, weights, preset, context)
    with ExitStack() as stack:
        models: dict[str, Model] = {}
        held: dict[str, int] = {}
        for form in FORMS:
            release_free()
            before = resident_bytes()
            options = OpenOptions(format=form, drafter="none", plan="none", threads=suite.threads,
                                  batch_invariant=None if form != "onnx" else False)  # fmt: skip
            pipeline = stack.enter_context(Pipeline.open(bundle, options))
            models[form] = pipeline.target
            tokens = heldout_tokens(pipeline.tokenizer, _READ + _ROWS[-1])
            _times(stack, {form: models[form]}, tokens, turns=1)  # opens every graph
            held[form] = resident_bytes() - before
        found = _times(stack, models, tokens, turns=_TURNS)
        read = _reads(stack, models, tokens)
    rows = []
    for form, seconds in found.items():
        one = median(seconds[1])
        about = {"weights": weights, "model": preset or "as it ships", "context": context}
        recorder.add(kind="passes", **about, form=form, seconds=seconds, read_s=read[form])
        costs = {f"T({rows})": median(seconds[rows]) / one for rows in _ROWS[1:]}
        row = {**about, "form": form, "held_bytes": held[form], "read_s": median(read[form])}
        rows.append({**row, "one_s": one, **costs})
    return recorder.table(rows, "costs")


def _reads(
    stack: ExitStack, models: dict[str, Model], tokens: Sequence[int]
) -> dict[str, list[float]]:
    """Return the time of prefilling a chunk of 128 tokens, by form, in seconds."""
    sessions = {form: stack.enter_context(closing(m.open(256))) for form, m in models.items()}
    found: dict[str, list[float]] = {form: [] for form in models}
    for _ in range(_TURNS):
        for form, session in sessions.items():
            begin = perf_counter()
            session.prefill(tokens[:_READ])
            found[form].append(perf_counter() - begin)
            session.rollback(0)
    return found


def _times(
    stack: ExitStack, models: dict[str, Model], tokens: Sequence[int], turns: int
) -> dict[str, dict[int, list[float]]]:
    """Return seconds of passes by form and rows."""
    sessions = {form: stack.enter_context(closing(m.open(256))) for form, m in models.items()}
    return pass_times(sessions, tokens, _READ, _ROWS, turns)
