"""Graphs of static shape: every kind of decoder and of weights, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from tiny_models import (
    MemoryTensors,
    random_tensors,
    tiny_checkpoint,
    tiny_config,
    write_tiny_graphs,
)
from tiny_variants import VARIANTS

from edgedec.bundle import Bundle
from edgedec.cli import main
from edgedec.errors import InputError, ParityError, UnsupportedArchitecture
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.graph import GraphWriter
from edgedec.export.onnx_static import StaticOptions, write_graphs
from edgedec.export.onnx_static.parity import compare
from edgedec.export.quantize import dequantize, quantize
from edgedec.export.reference import Reference
from edgedec.models.registry import spec_for
from edgedec.runtimes.onnx_static.model import StaticModel

MIXTURES = {"qwen3_moe", "olmoe"}
KINDS = {"llama": {}, **VARIANTS}
TOKENS = [int(t) for t in np.random.default_rng(0).integers(0, 90, 40)]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - MIXTURES))
def test_every_kind_of_decoder(tmp_path: Path, kind: str) -> None:
    spec, tensors = write_tiny_graphs(tmp_path, **KINDS[kind])
    session = StaticModel.load(tmp_path, threads=1).open(64)
    from edgedec.decoding.tree import TokenTree

    session.prefill(TOKENS[:30])
    logits = session.forward(TokenTree.chain(TOKENS[30:])).logits
    expected = Reference(spec, MemoryTensors(tensors)).logits(TOKENS)[30:]
    assert logits is not None
    used = spec.vocab_used
    np.testing.assert_allclose(logits[:, :used], expected[:, :used], atol=1e-4)


@pytest.mark.parametrize("weights", ["fp32", "fp16", "int8", "int4"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2", "padded"])
def test_operators_are_standard_and_shapes_fixed(tmp_path: Path, kind: str, weights: str) -> None:
    write_tiny_graphs(tmp_path, weights, **KINDS[kind])
    graphs = sorted(tmp_path.glob("*.onnx"))
    assert [file.name for file in graphs] == [
        "static-1.onnx", "static-16.onnx", "static-4.onnx", "static-8.onnx", "static-read-128.onnx"
    ]  # fmt: skip
    assert [file.name for file in tmp_path.glob("*") if file not in graphs] == ["static.data"]
    for file in graphs:
        onnx.checker.check_model(str(file), full_check=True)
        model = onnx.load(file, load_external_data=False)
        assert [entry.domain for entry in model.opset_import] == [""]
        assert {node.domain for node in model.graph.node} == {""}
        for value in (*model.graph.input, *model.graph.output):
            dims = value.type.tensor_type.shape.dim
            assert all(dim.HasField("dim_value") for dim in dims), value.name


def test_a_dynamic_graph_has_other_operators(tmp_path: Path) -> None:
    """The control of the test above."""
    from tiny_models import write_tiny_model

    write_tiny_model(tmp_path)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert "com.microsoft" in [entry.domain for entry in model.opset_import]


def test_weights_are_stored_once(tmp_path: Path) -> None:
    write_tiny_graphs(tmp_path / "one", rows=(1,))
    write_tiny_graphs(tmp_path / "four")
    sizes = [(tmp_path / name / "static.data").stat().st_size for name in ("one", "four")]
    assert sizes[0] == sizes[1]


def test_int4_is_the_rounding_of_the_other_formats(tmp_path: Path) -> None:
    spec, tensors = write_tiny_graphs(tmp_path, "int4")
    model = onnx.load(tmp_path / "static-1.onnx")
    name = spec.name("down", 1)
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    integers = stored[f"{name}.integers"].astype(np.float32)
    whole = integers * np.repeat(stored[f"{name}.scales"], 32, axis=0)
    blocks = quantize(tensors[name], 4, 32)
    expected = dequantize(blocks.packed, blocks.scales, 4, tensors[name].shape[1])
    np.testing.assert_array_equal(whole.T, expected)


# -- parity -------------------------------------------------------------------------------------


def parity(folder: Path, weights: str) -> float:
    spec = spec_for(tiny_config())
    tensors, options = MemoryTensors(random_tensors(spec)), StaticOptions("tiny", weights=weights)
    write_graphs(spec, tensors, folder, options)
    return compare(spec, tensors, folder, options, TOKENS, lambda *_: None).kl_nats


@pytest.mark.parametrize(("weights", "most"), [("fp32", 1e-9), ("fp16", 1e-4), ("int8", 0.05)])
def test_parity(tmp_path: Path, weights: str, most: float) -> None:
    assert parity(tmp_path, weights) < most


def test_a_mistake_of_the_emitter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = GraphWriter.node

    def wrong(self, op, inputs, out, **attributes):  # type: ignore[no-untyped-def]
        if out == "layers.1.attention.past.keys":
            return node(self, op, inputs, out, **attributes)
        if out == "layers.1.q.heads.low":
            op = "Add"
        return node(self, op, inputs, out, **attributes)

    monkeypatch.setattr(GraphWriter, "node", wrong)
    with pytest.raises(ParityError, match="layer 1 of the fp32 graph differs"):
        parity(tmp_path, "int8")


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(MIXTURES))
def test_a_mixture_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=rf"\({kind}\) is a mixture of experts"):
        write_tiny_graphs(tmp_path, **KINDS[kind])
    assert not list(tmp_path.iterdir())


def test_a_width_beyond_the_context(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="up to 16: expected at most the context of 8"):
        write_tiny_graphs(tmp_path, max_position_embeddings=8)


def test_int4_of_odd_widths(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitecture, match="the onnx-static format cuts int4"):
        write_tiny_graphs(tmp_path, "int4", intermediate_size=100)


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["export", *words])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--static-rows", "2,4"], "--static-rows 2,4: expected widths that ascend from 1"),
        (["--static-rows", "1,x"], "--static-rows 1,x: expected widths that ascend from 1"),
        (
            ["--static-rows", "1,8", "--static-context", "4"],
            "up to 8: expected at most",
        ),
        (["--static-context", "0"], "--static-context 0: expected 1 to 256"),
        (["--static-context", "999"], "--static-context 999: expected 1 to 256"),
        (
            ["--static-rows", "1", "--kv", "int8"],
            "--kv int8 is for onnx: leave it out",
        ),
        (["--static-rows", "1", "--format", "gguf"], "--static-rows is for onnx-static"),
        (
            ["--static-rows", "1", "--batch-invariant"],
            "--batch-invariant is for onnx: leave it out",
        ),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    checkpoint, out = tiny_checkpoint(tmp_path / "checkpoint"), tmp_path / "out"
    arguments = [str(checkpoint), "--out", str(out), "--weights", "fp32"]
    if "gguf" in words:
        arguments = arguments[:3]
    code, output = run(*arguments, *words)
    assert code != 0
    assert message in output
    assert "Traceback" not in output
    assert not out.exists()


# -- the bundle ---------------------------------------------------------------------------------


def test_a_bundle(tmp_path: Path) -> None:
    options = ExportOptions(
        tiny_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle", formats=("onnx-static",),
        weights="fp32", static_rows=(1, 4), static_context=64,
    )  # fmt: skip
    report = export_bundle(options)
    (model,) = report.models
    assert model.parity["kl_nats"] < 1e-9
    bundle = Bundle.open(tmp_path / "bundle")
    assert bundle.target.dims["max_context"] == 64
    variant = bundle.target.variant("onnx-static")
    assert variant.files[0] == "target/static-1.onnx"
    assert len(variant.files) == 4
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "bundle")]).output
    assert "passes of 1, 4 rows, a prompt in chunks of 64" in shown
    assert "context 64 tokens, cache float32[4, 2, 64, 16]" in shown


def test_the_context_is_bounded_where_none_is_given(tmp_path: Path) -> None:
    from edgedec.export.formats import onnx_static

    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", max_position_embeddings=8192)
    options = ExportOptions(
        checkpoint, tmp_path / "bundle", formats=("onnx-static",), weights="fp32", parity=False
    )
    export_bundle(options)
    file = tmp_path / "bundle" / "target" / "static-1.onnx"
    facts = json.loads(
        next(p.value for p in onnx.load(file, load_external_data=False).metadata_props)
    )
    assert facts["slots"] == onnx_static._CONTEXT == 4096
