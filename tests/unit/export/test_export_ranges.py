"""Integer activations: their grids, the outliers that are kept apart, and what a decoder loses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from tiny_models import MemoryTensors, random_tensors, tiny_checkpoint, tiny_config
from tiny_models import write_tiny_graphs as write_tiny
from tiny_outliers import trained_with_outliers, with_outliers
from tiny_variants import VARIANTS

from edgedec.bundle.manifest import MANIFEST
from edgedec.cli import main
from edgedec.decoding.tree import TokenTree
from edgedec.errors import ParityError
from edgedec.export import ExportOptions, export_bundle, ranges
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.divergence import ParityFigures
from edgedec.export.onnx_static import StaticOptions, activations, write_graphs
from edgedec.export.onnx_static.parity import compare
from edgedec.export.ranges import Grid, Ranges, measured
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for
from edgedec.runtimes.onnx_static.model import StaticModel
from edgedec.text.tokenizer import Tokenizer

DEMO = Path(__file__).parents[3] / "models" / "demo"
MIXTURES = {"qwen3_moe", "olmoe"}
KINDS: dict[str, dict[str, Any]] = {"llama": {}, **VARIANTS}
RNG = np.random.default_rng(3)
TEXTS = [RNG.integers(0, 90, 60).tolist() for _ in range(3)]


# -- grids and outliers -------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (0.5, 2.0), (-4.0, -1.0), (0.0, 0.0)])
def test_a_grid_has_zero_and_reaches_both_ends(low: float, high: float, bits: int) -> None:
    grid = Grid.over(low, high, bits)
    first, last = grid.ends
    assert 0 <= grid.zero < 2**bits
    assert grid.scale > 0
    assert first <= min(low, 0) + grid.scale
    assert last >= max(high, 0) - grid.scale


def test_what_outliers_exceed_the_grid_by_is_no_part_of_an_outputs_range() -> None:
    """It is added in floating point, and would leave the rest few of the output's steps."""
    x = RNG.uniform(-1, 1, (40, 32)).astype(np.float32)
    x[3, 5] = 200
    matrix = RNG.standard_normal((32, 8)).astype(np.float32)
    grid, outliers = ranges._grid([x[:20], x[20:]], 8)
    assert outliers == (5,)
    held = np.abs(np.clip(x, *grid.ends) @ matrix).max(axis=0)
    peaks = ranges._peaks([x[:20], x[20:]], matrix, grid)
    np.testing.assert_allclose(peaks, held * ranges._MARGIN, rtol=1e-5)
    assert (np.abs(x @ matrix).max(axis=0) > 1.5 * held).any(), "the control"


def test_outliers_are_found_where_they_are() -> None:
    spec = spec_for(tiny_config())
    arrays = random_tensors(spec, 5)
    assert not any(each.outliers for each in measured_of(spec, arrays).products.values())
    found = measured_of(spec, with_outliers(arrays, spec)).products
    for layer in range(spec.layers):
        expected = {"q": (3, 9), "k": (3, 9), "up": (5,), "gate": (5,), "down": (7, 8)}
        for role, channels in expected.items():
            assert found[spec.name(role, layer)].outliers == channels
        assert found[spec.name("o", layer)].outliers == (2, 2 + spec.head_dim)


def measured_of(spec: Any, arrays: Any) -> Ranges:
    return measured(spec, MemoryTensors(arrays), TEXTS, 8)


def test_a_head_reads_what_the_final_norm_is_multiplied_by() -> None:
    """Graphs scale a head's input, and so its range as well as that of the logits."""
    spec = spec_for(tiny_config())
    arrays = random_tensors(spec, 5)
    found = {
        factor: measured_of(
            dataclasses.replace(spec, scales=dataclasses.replace(spec.scales, logits=factor)),
            arrays,
        ).products[spec.name("head")]
        for factor in (1.0, 4.0)
    }
    np.testing.assert_allclose(found[4.0].grid.scale, 4 * found[1.0].grid.scale, rtol=1e-5)
    np.testing.assert_allclose(found[4.0].peaks, 4 * found[1.0].peaks, rtol=1e-5)


def test_a_heads_range_has_room_for_what_other_texts_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_for(tiny_config())
    arrays, heads = random_tensors(spec, 5), []
    for margin in (1.0, ranges._HEAD_MARGIN):
        monkeypatch.setattr(ranges, "_HEAD_MARGIN", margin)
        heads.append(measured_of(spec, arrays).products[spec.name("head")])
    tight, wide = heads
    np.testing.assert_allclose(wide.grid.scale, 2 * tight.grid.scale, rtol=1e-4)
    np.testing.assert_allclose(wide.peaks, 2 * tight.peaks, rtol=1e-5)


def test_a_text_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "TOKENS", 100)
    assert ranges._some(TEXTS) == TEXTS[:2]


# -- graphs -------------------------------------------------------------------------------------


def logits(folder: Path, tokens: list[int]) -> Any:
    found = StaticModel.load(folder, threads=1).open(64).forward(TokenTree.chain(tokens)).logits
    assert found is not None
    return found


@pytest.mark.parametrize("kind", sorted(set(KINDS) - MIXTURES))
def test_every_kind_of_decoder(tmp_path: Path, kind: str) -> None:
    spec, tensors = write_tiny(tmp_path, "int8", activations="int16", rows=(1, 16), **KINDS[kind])
    used, tokens = spec.vocab_used, TEXTS[0][:16]
    found = logits(tmp_path, tokens)[:, :used]
    expected = Reference(spec, MemoryTensors(tensors)).logits(tokens)[:, :used]
    spread = np.abs(expected - expected.mean(axis=1, keepdims=True)).mean()
    assert np.abs(found - expected).mean() < 0.05 * spread
    assert np.abs(np.roll(found, 1, axis=0) - expected).mean() > 0.5 * spread


@pytest.mark.parametrize("bits", [8, 16])
def test_operators_are_standard_and_products_integer(tmp_path: Path, bits: int) -> None:
    spec, _ = write_tiny(tmp_path, "int8", activations=f"int{bits}", rows=(1, 4))
    for file in sorted(tmp_path.glob("*.onnx")):
        onnx.checker.check_model(str(file), full_check=True)
        graph = onnx.load(file).graph
        assert {node.domain for node in graph.node} == {""}
        makers = {out: node for node in graph.node for out in node.output}
        stored = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        products = [node for node in graph.node if node.op_type == "Gemm"]
        assert len(products) == 4 * spec.layers + ("read" not in file.name)
        for node in products:
            assert [makers[name].op_type for name in node.input] == ["DequantizeLinear"] * 2
            integers, scale, *_ = makers[node.input[1]].input
            assert stored[integers].dtype == np.int8
            # Qualcomm's NPU takes negative scales and computes wrongly with them.
            assert (stored[scale] > 0).all()


def divergence(folder: Path, kept: str, bits: int = 8) -> ParityFigures:
    """Of a trained model with outliers, all of whose steps are written by ``write_graphs``."""
    checkpoint = Checkpoint.open(DEMO / "draft")
    spec, tensors = checkpoint.spec.within(256), MemoryTensors(trained_with_outliers(checkpoint))
    tokens = Tokenizer.load(DEMO / "draft").encode(Path(ranges.__file__).read_text())
    texts, unseen = [tokens[i : i + 256] for i in range(0, 1024, 256)], tokens[1024:1216]
    found = measured(spec, tensors, texts, bits)
    if kept == "cut off":
        found = Ranges(bits, {
            name: dataclasses.replace(each, outliers=()) for name, each in found.products.items()
        })  # fmt: skip
    options = StaticOptions("wild", weights="int8", rows=(1, 64), activations=f"int{bits}")
    write_graphs(spec, tensors, folder, options, None, found)
    return compare(spec, tensors, folder, options, unseen, lambda *_: None)


@pytest.mark.parametrize(("bits", "most"), [(8, 0.02), (16, 0.005)])
def test_outliers_kept_apart_lose_little(tmp_path: Path, bits: int, most: float) -> None:
    assert divergence(tmp_path, "kept", bits).kl_nats < most


def test_outliers_on_the_common_grid_lose_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_MOST_OUTLIERS", 0)
    found = divergence(tmp_path, "kept")
    assert found.kl_nats > 1
    with pytest.raises(ParityError, match="try --static-activations int16"):
        found.check("draft", "int8", activations="int8")


@pytest.mark.parametrize("bits", [8, 16])
def test_outliers_cut_off_lose_more(tmp_path: Path, bits: int) -> None:
    assert divergence(tmp_path, "cut off", bits).kl_nats > 0.03


def test_columns_of_other_channels_lose_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = activations.chunks

    def twin(*given: Any) -> Any:
        return (np.roll(part, 1, axis=1) for part in chunks(*given))

    beyond = activations.IntegerActivations._beyond

    def wrong(self: Any, *given: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(activations, "chunks", twin)
            return beyond(self, *given)

    monkeypatch.setattr(activations.IntegerActivations, "_beyond", wrong)
    assert divergence(tmp_path, "kept").kl_nats > 1


# -- export -------------------------------------------------------------------------------------


def test_a_bundle(tmp_path: Path) -> None:
    options = ExportOptions(
        tiny_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", formats=("onnx-static",),
        weights="int8", static_rows=(1, 4), static_context=64, static_activations="int16",
    )  # fmt: skip
    (model,) = export_bundle(options).models
    assert "activations in int16; 0 outlier channels of 0 matrices out of 15" in model.notes[-1]
    assert model.parity["kl_nats"] < 0.005
    assert model.errors
    manifest = json.loads((tmp_path / "bundle" / MANIFEST).read_text())
    assert manifest["provenance"]["options"]["calibration"] == "self"
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "bundle")])
    assert "products of int16 activations with int8 weights" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weights", "int4"], "with --weights int4"),
        ([], "with --weights int4"),
        (["--weights", "int8", "--draft", "", "--draft-weights", "fp16"], "--draft-weights fp16"),
        (["--weights", "int8", "--calibration", "none"], "with --calibration none"),
        (["--weights", "q4_0", "--format", "gguf"], "int8 is for onnx-static: leave it out"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    checkpoint, out = str(tiny_checkpoint(tmp_path / "checkpoint")), tmp_path / "out"
    words = [word or checkpoint for word in words]
    arguments = [checkpoint, "--out", str(out), "--static-activations", "int8", *words]
    result = CliRunner().invoke(main, ["export", *arguments])
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
    assert not out.exists()
