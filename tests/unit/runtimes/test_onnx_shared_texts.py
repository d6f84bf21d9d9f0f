"""Texts of a Gemma 4, whose layers share caches and look a table up, and what it takes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from kinds import in_full
from tiny_bundles import kept
from tiny_gemma4 import CONFIG, StaleRows
from tiny_models import tiny_checkpoint

from edgedec.bundle.onnx_file import read_model_file
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import BundleError, RuntimeUnavailable, UnsupportedArchitecture
from edgedec.export import ExportOptions, export_bundle
from edgedec.loading.build import OpenOptions
from edgedec.memory.account import ModelCosts
from edgedec.models.registry import spec_for
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.records.load import LoadOptions
from edgedec.runtimes.onnx import adapter
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.verify.results import Verification
from edgedec.verify.same_texts import verify

PROMPTS = [("repeats", [5, 6, 7, 8, 9] * 4), ("does not", list(range(5, 60)))]
SEEDED = SamplingParams(temperature=0.8, seed=3)
ASKED = GenerateOptions(max_new_tokens=48, sampling=SEEDED, ignore_eos=True)
# The tokenizer of a tiny checkpoint has its own number of tokens.
VOCAB = 512
OWN = CONFIG | {"vocab_size": VOCAB, "vocab_size_per_layer_input": VOCAB}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    tiny_checkpoint(folder / "gemma4", **OWN)
    tiny_checkpoint(folder / "llama", hidden_size=32, intermediate_size=64, vocab_size=VOCAB)
    return folder


def bundle(checkpoints: Path, weights: str = "fp32", draft: bool = False) -> Path:
    options = ExportOptions(
        checkpoints / "gemma4", Path("bundle"), checkpoints / "llama" if draft else None,
        weights=weights, parity=False, calibration="none",
    )  # fmt: skip
    return kept(options)


def compared(checkpoints: Path, weights: str, drafter: str) -> Verification:
    options = OpenOptions(drafter=drafter, draft_length=5).changed(batch_invariant=True, threads=1)
    folder = bundle(checkpoints, weights, draft=drafter in ("model", "hybrid", "adaptive"))
    return verify(folder, PROMPTS, ASKED, options=options)


DRAFTED = [
    ("fp32", "lookup"),
    ("int4", "model"),
    *in_full(
        [
            (weights, drafter)
            for weights in ("fp32", "int8", "int4")
            for drafter in ("lookup", "recycle", "suffix", "text", "model", "hybrid", "adaptive")
        ],
        kept=0,
    ),
]


@pytest.mark.parametrize(("weights", "drafter"), DRAFTED)
def test_drafted_texts_are_the_same(checkpoints: Path, weights: str, drafter: str) -> None:
    found = compared(checkpoints, weights, drafter)
    assert found.plan["batch_invariant"]
    assert not found.divergences
    # Greedily and with a seed.
    assert [row.identical for row in found.rows] == [len(PROMPTS)] * 2


def test_a_stale_row_of_a_shared_cache_is_noticed(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = OpenOptions(drafter="tree", draft_length=5).changed(threads=1)
    folder = bundle(checkpoints, "fp32", draft=True)
    assert not verify(folder, PROMPTS, ASKED, options=options).divergences
    monkeypatch.setattr("edgedec.runtimes.onnx.graph.KvCache", StaleRows)
    assert verify(folder, PROMPTS, ASKED, options=options).divergences


def test_a_turn_goes_on_and_a_saved_text_too(checkpoints: Path, tmp_path: Path) -> None:
    prompt, asked = list(range(5, 60)), GenerateOptions(max_new_tokens=30, ignore_eos=True)
    options = OpenOptions(drafter="lookup").changed(batch_invariant=True, threads=1)
    with Pipeline.open(bundle(checkpoints), options) as pipeline:
        first = pipeline.generate(prompt, asked).token_ids
        pipeline.save(tmp_path / "session")
        longer = [*prompt, *first, 7, 9]
        expected = pipeline.generate(longer, asked)
        assert expected.metrics.reused_tokens == len(prompt) + len(first) - 1
    with Pipeline.open(bundle(checkpoints), options) as pipeline:
        assert pipeline.generate(longer, asked).token_ids == expected.token_ids
    with Pipeline.open(bundle(checkpoints), options) as pipeline:
        pipeline.restore(tmp_path / "session")
        found = pipeline.generate(longer, asked)
    assert found.token_ids == expected.token_ids
    assert found.metrics.reused_tokens == len(prompt) + len(first) - 1


# -- the table that is looked up ----------------------------------------------------------------


@pytest.mark.parametrize(("weights", "bits"), [("fp32", 32), ("int8", 8 + 1), ("int4", 4 + 1)])
def test_the_table_is_no_weight_that_passes_read(
    checkpoints: Path, weights: str, bits: int
) -> None:
    """Blocks of 32 numbers have a scale of 32 bits."""
    folder = bundle(checkpoints, weights) / "target"
    info, spec = OnnxModel.load(folder, threads=1).info, spec_for(OWN)
    numbers = VOCAB * spec.layers * spec.per_layer_inputs
    whole = read_model_file(folder / "model.onnx").weight_bytes
    assert whole - info.weight_bytes == numbers * bits // 8
    assert info.lookup_bytes == 3 * 4096  # of a row and of its scales, wherever they begin


def test_rows_count_as_memory_when_a_text_may_touch_them() -> None:
    costs = ModelCosts(1 << 20, 8, 4096, 100, lookup_bytes=3 * 4096)
    assert costs.weights(10) == (1 << 20) + 10 * 3 * 4096
    # There are no more rows than tokens.
    assert costs.weights(1000) == (1 << 20) + 100 * 3 * 4096


# -- damaged facts, and what computes layers of one kind ----------------------------------------


def altered(folder: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    shutil.copytree(folder, to)
    model = onnx.load(to / "model.onnx", load_external_data=False)
    facts = json.loads(model.metadata_props[0].value)
    change(facts)
    model.metadata_props[0].value = json.dumps(facts)
    (to / "model.onnx").write_bytes(model.SerializeToString())
    return to


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(looked_up=1 << 40),
        lambda facts: facts.update(looked_up=-1),
        lambda facts: facts["varied"].update(lenders=[0, 1, 2, 3, 2, 2]),
        lambda facts: facts["varied"].update(lenders=[0, 1, 2, 3, 5, 2, 3]),
        lambda facts: facts["varied"].update(lenders=[0, 1, 2, 3, 3, 2, 3]),
        lambda facts: facts["varied"].update(lenders=[0, 1, 2, 3, 2, 4, 3]),
        lambda facts: facts["varied"].update(heads=[[2, 16]] * 7),
        lambda facts: facts["varied"].update(heads=[[2, -16]] * 7),
        lambda facts: facts.update(varied=[]),
        lambda facts: facts.pop("varied"),
    ],
)
def test_damaged_facts_are_refused(
    checkpoints: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    folder = bundle(checkpoints) / "target"
    OnnxModel.load(altered(folder, tmp_path / "same", lambda facts: None), threads=1)
    with pytest.raises(BundleError, match="export it again"):
        OnnxModel.load(altered(folder, tmp_path / "damaged", change), threads=1)


@pytest.mark.parametrize("format", ["onnx-static", "coreml"])
def test_formats_of_heads_of_one_size_refuse(
    checkpoints: Path, tmp_path: Path, format: str
) -> None:
    options = ExportOptions(checkpoints / "gemma4", tmp_path / "out", formats=(format,))
    with pytest.raises(UnsupportedArchitecture, match=f"the format {format} has heads of one size"):
        export_bundle(options)
    assert not list(tmp_path.iterdir())


def test_streamed_weights_and_openvino_refuse(checkpoints: Path) -> None:
    file = bundle(checkpoints) / "target" / "model.onnx"
    with pytest.raises(RuntimeUnavailable, match="--weight-memory runs layers of one kind"):
        adapter.load(file, LoadOptions(threads=1, weight_memory=1 << 20))
    pytest.importorskip("openvino")
    with pytest.raises(RuntimeUnavailable, match="OpenVINO runs layers of one kind"):
        adapter.load(file, LoadOptions(threads=1, device="openvino"))


def test_wide_arrays_are_trimmed_each_for_itself() -> None:
    """Slots that are kept stay, in every array, and those behind them give their memory back."""
    cache = KvCache((2, 2, 4096, 4), np.float32, others=[(4, 1, 4096, 8)])
    for rows in cache.groups:
        rows[...] = 3
    cache.trim(1024)
    for rows in cache.groups:
        assert (rows[:, :, :1024] == 3).all()
        assert (rows[:, :, 2048:] == 0).all()
    cache.close()
