"""Measures the effect of rounding every value to fp16 in a CoreML program, with the interpreter."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bundles import Suite
from benchmarks.workloads import heldout_tokens
from edgedec.compare.records import Recorder, Row
from edgedec.decoding.session import Model, Want
from edgedec.decoding.tree import FloatArray, TokenTree

if TYPE_CHECKING:
    from edgedec.models.decoder import DecoderSpec

FORMS = ("slice", "blend")
_TOKENS, _CONTEXT = 100, 512


def spread(suite: Suite, recorder: Recorder) -> list[Row]:
    """Compare the shipped target with fp16 weights, values in fp16, with the reference in fp32.

    Both compute with the stored weights. Layers are compared on the first pass, each starting from
    the program's own stream and relative to what it adds; logits on 100 tokens.
    """
    from edgedec.export import ExportOptions, export_bundle
    from edgedec.export.checkpoint import Checkpoint
    from edgedec.text.tokenizer import Tokenizer

    source = suite.bundles.checkpoint("target")
    tokens = heldout_tokens(Tokenizer.load(source), _TOKENS)
    rows: list[Row] = []
    for form in FORMS:
        with tempfile.TemporaryDirectory(prefix="edgedec-spread-") as made:
            options = ExportOptions(
                source, Path(made) / "bundle", formats=("coreml",), weights="fp16", form=form,
                max_context=_CONTEXT, parity=False,
            )  # fmt: skip
            model = export_bundle(options).models[0]
            package = options.out / model.files[0]
            spec = Checkpoint.open(source).spec.within(_CONTEXT)
            rows.append({"form": form, **compare(spec, package, tokens)})
    recorder.table(rows, "spread")
    return rows


def compare(spec: DecoderSpec, path: Path, tokens: list[int]) -> Row:
    """Return the differences of a program in fp16 from the reference over its stored weights."""
    from edgedec.coreml import Package
    from edgedec.coreml.constants import Constants
    from edgedec.export.coreml.parity import StoredTensors, Tapped, as_stored, layer_differences
    from edgedec.export.divergence import Divergence
    from edgedec.export.reference import Reference
    from edgedec.runtimes.coreml.model import CoremlModel

    package = Package.open(path)
    exact, half = (Constants(package, exact=each) for each in (True, False))
    executor = Tapped(spec, half)
    model = CoremlModel(package, executor)
    used, wide = model.facts.vocab_used, model.facts.rows[-1]
    got = _logits(model, tokens, wide)[:, :used]
    stored = StoredTensors(spec, package, exact)
    expected = Reference(as_stored(spec, model.facts.form), stored).logits(tokens)[:, :used]
    divergence = Divergence(tokens)
    divergence.add(expected[:-1], got[:-1], 0)
    figures = divergence.result(0.0)
    layers = layer_differences(spec, exact, tokens[:wide], executor.found, math.inf)
    return {
        "tokens": len(tokens),
        "layers": layers,
        "layer_median": median(layers),
        "layer_most": max(layers),
        "logits_most": float(np.abs(got - expected).max()),
        "logits_rms": float(np.sqrt(np.square(got - expected).mean())),
        "logits_spread": float(expected.std()),
        "kl_nats": figures.kl_nats,
        "top1": figures.top1,
    }


def _logits(model: Model, tokens: list[int], wide: int) -> FloatArray:
    session, found = model.open(len(tokens)), []
    for start in range(0, len(tokens), wide):
        tree = TokenTree.chain(tokens[start : start + wide])
        logits = session.forward(tree, want=Want.LOGITS).logits
        assert logits is not None
        found.append(logits)
        session.commit(range(len(tree)))
    session.close()
    return np.concatenate(found)
