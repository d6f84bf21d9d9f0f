"""Exports by way of optimum, from end to end, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from tiny_models import CHECKPOINT_VOCAB, leftovers, tiny_checkpoint
from tiny_optimum import write_tiny_graph
from tiny_torch import torch_checkpoint

from edgedec.bundle import Bundle
from edgedec.decoding.tree import TokenTree
from edgedec.errors import (
    CheckpointError,
    ExportError,
    InputError,
    ParityError,
    RuntimeUnavailable,
    UnsupportedArchitecture,
)
from edgedec.export import ExportOptions, export_bundle, optimum, traced
from edgedec.pipeline import GenerateOptions, Pipeline
from edgedec.runtimes.onnx_hub.model import HubModel
from edgedec.text.tokenizer import Tokenizer

# The tiny tokenizer's ids; the checkpoints have a few rows more.
TOKENS = 352


@pytest.fixture(scope="module")
def bloom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_checkpoint(tmp_path_factory.mktemp("bloom") / "bloom", "bloom")


def options(target: Path, out: Path, **more: object) -> ExportOptions:
    chosen = ExportOptions(target, out, formats=("optimum",))
    return dataclasses.replace(chosen, **more)  # type: ignore[arg-type]


# -- with torch ---------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.optimum
def test_a_model_without_a_spec(
    bloom: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, heard = tmp_path / "out", list[str]()
    report = export_bundle(options(bloom, out), lambda stage, *_: heard.append(stage))
    assert capfd.readouterr() == ("", ""), "torch talks to the terminal"
    assert leftovers(out) == []
    assert {"target", "target parity", "hashes"} <= set(heard)
    (model,) = report.models
    # Tied: 352 x 32 once. Two layers of 12 x 32 x 32 weights, biases and norms, as bloom has them.
    layer = 12 * 32 * 32 + 9 * 32 + 4 * 32
    assert model.parameters == CHECKPOINT_VOCAB * 32 + 2 * layer + 4 * 32
    assert model.parity["kl_nats"] < 1e-9
    assert model.parity["top1"] == 1
    # 2 layers, keys and values, 4 heads of 8, four bytes.
    assert "512 bytes per token" in model.notes[0]
    bundle = Bundle.open(out, verify=True)
    assert bundle.target.architecture == "bloom"
    assert bundle.target.licence == "mit"
    assert bundle.target.dims["layers"] == 2
    assert sorted(path.name for path in (out / "target").iterdir()) == [
        "optimum.onnx",
        "optimum.onnx.data",
    ]


@pytest.mark.torch
@pytest.mark.optimum
def test_shards_are_read_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    opt = torch_checkpoint(tmp_path / "opt", "opt", shard="20KB")
    assert len(list(opt.glob("*.safetensors"))) > 1
    capfd.readouterr()
    report = export_bundle(options(opt, tmp_path / "out"))
    assert capfd.readouterr() == ("", "")
    assert report.models[0].parity["kl_nats"] < 1e-9


@pytest.mark.torch
@pytest.mark.optimum
def test_its_text_is_torchs_own(bloom: Path, tmp_path: Path) -> None:
    export_bundle(options(bloom, tmp_path / "out", parity=False))
    tokens = Tokenizer.load(bloom).encode("def f(x):\n    return")
    decoder = optimum.TorchDecoder(bloom)
    expected = list(tokens)
    for _ in range(24):
        expected.append(int(decoder.logits(expected)[-1].argmax()))
    for draft in ("none", "lookup", "recycle"):
        with Pipeline.open(tmp_path / "out", drafter=draft, draft_length=3) as pipeline:
            got = pipeline.generate(tokens, GenerateOptions(max_new_tokens=24, ignore_eos=True))
        assert got.token_ids == expected[len(tokens) :], draft


@pytest.mark.torch
@pytest.mark.optimum
def test_a_pair_with_vocabularies_of_different_height(bloom: Path, tmp_path: Path) -> None:
    taller = torch_checkpoint(tmp_path / "taller", "falcon", vocab_size=CHECKPOINT_VOCAB + 32)
    out = tmp_path / "out"
    export_bundle(options(taller, out, draft=bloom, weights="int8", parity=False))
    bundle = Bundle.open(out)
    used = bundle.target.dims["vocab_used"]
    for role in ("target", "draft"):
        model = HubModel.load(out / role, threads=1)
        assert model.info.vocab_size == CHECKPOINT_VOCAB + 32
        session = model.open(8)
        logits = session.forward(TokenTree.chain([1, 2, 3])).logits
        assert logits is not None
        assert np.isneginf(logits[:, used:]).all()
        assert np.isfinite(logits[:, :used]).all()
    assert used <= TOKENS


@pytest.mark.torch
@pytest.mark.optimum
def test_weights_in_int8(bloom: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a model's own floor, on random weights\n" * 40, "utf-8")
    whole = export_bundle(options(bloom, tmp_path / "fp32", parity_text=text))
    small = export_bundle(options(bloom, tmp_path / "int8", parity_text=text, weights="int8"))
    assert small.models[0].size_bytes < whole.models[0].size_bytes
    assert 0 < small.models[0].parity["kl_nats"] < 0.02
    model = onnx.load(tmp_path / "int8" / "target" / "optimum.onnx", load_external_data=False)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("MatMulInteger") >= 2 * 4
    assert "Gemm" not in kinds


@pytest.mark.torch
@pytest.mark.optimum
def test_a_graph_that_strays_is_noticed(
    bloom: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = traced.finish

    def spoilt(graph: Path, file: Path, facts: traced.TracedFacts) -> traced.Cache:
        model = onnx.load(graph)
        tensor = max(model.graph.initializer, key=lambda each: len(each.raw_data))
        values = onnx.numpy_helper.to_array(tensor).copy()
        values[:, 0] += 1
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        onnx.save(model, graph)
        return finish(graph, file, facts)

    monkeypatch.setattr(traced, "finish", spoilt)
    with pytest.raises(ParityError, match="diverges too far"):
        export_bundle(options(bloom, tmp_path / "out"))
    assert leftovers(tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


@pytest.mark.torch
@pytest.mark.optimum
def test_a_context_of_ones_own(bloom: Path, tmp_path: Path) -> None:
    export_bundle(options(bloom, tmp_path / "out", parity=False, max_context=48))
    assert HubModel.load(tmp_path / "out" / "target").info.max_context == 48
    with pytest.raises(InputError, match="1 to 256"):
        export_bundle(options(bloom, tmp_path / "other", max_context=257))


@pytest.mark.torch
@pytest.mark.optimum
def test_beside_our_own_format(tmp_path: Path) -> None:
    target = tiny_checkpoint(tmp_path / "llama")
    chosen = ExportOptions(
        target, tmp_path / "out", formats=("onnx", "optimum"), weights="onnx=fp32,optimum=fp32"
    )
    report = export_bundle(chosen)
    assert [model.format for model in report.models] == ["onnx", "optimum"]
    # Two ways to the same numbers: our reference and torch.
    ours, theirs = (model.parity["perplexity_source"] for model in report.models)
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.torch
@pytest.mark.optimum
def test_what_is_refused(bloom: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UnsupportedArchitecture, match="--exporter optimum"):
        export_bundle(ExportOptions(bloom, out))
    with pytest.raises(UnsupportedArchitecture, match="no spec"):
        export_bundle(ExportOptions(bloom, out, formats=("onnx", "optimum")))
    mamba = torch_checkpoint(tmp_path / "mamba", "mamba")
    with pytest.raises(UnsupportedArchitecture, match="optimum does not export model_type 'mamba'"):
        export_bundle(options(mamba, out))
    with pytest.raises(InputError, match="--kv int8 is for onnx"):
        export_bundle(options(bloom, out, kv="int8"))
    with pytest.raises(InputError, match="expected one of int8, fp32"):
        export_bundle(options(bloom, out, weights="int4"))
    assert not out.exists()


@pytest.mark.torch
@pytest.mark.optimum
def test_checkpoints_that_do_not_load(bloom: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bloom, tmp_path / "bad"))
    file = folder / "model.safetensors"
    file.rename(folder / "pytorch_model.bin")  # pickled, or so it says: never read
    with pytest.raises(CheckpointError):
        export_bundle(options(folder, tmp_path / "out"))
    (folder / "pytorch_model.bin").rename(file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError):
        export_bundle(options(folder, tmp_path / "out"))


@pytest.mark.torch
@pytest.mark.optimum
def test_no_code_of_the_checkpoint_runs(bloom: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(bloom, tmp_path / "evil"))
    (folder / "code.py").write_text("raise SystemExit('it ran')\n", "utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"},
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises((CheckpointError, UnsupportedArchitecture)):
        export_bundle(options(folder, tmp_path / "out"))


# -- without ------------------------------------------------------------------------------------


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(RuntimeUnavailable, match=r"needs .*torch.*\[optimum\]"):
        optimum.check_installed()


@pytest.mark.parametrize("kind", [ValueError, ImportError])
def test_what_fails_inside_becomes_one_line(kind: type[Exception]) -> None:
    with pytest.raises(ExportError) as caught, optimum._quiet("torch cannot", ExportError):
        raise kind("the first line\nand a page more")
    assert str(caught.value) == "torch cannot: the first line"


FACTS = traced.TracedFacts("tiny", (0,), 64, 90, 104, "fp32")


def test_columns_that_are_no_token_never_win(tmp_path: Path) -> None:
    graph = write_tiny_graph(tmp_path) / "optimum.onnx"
    (tmp_path / "made").mkdir()
    cache = traced.finish(graph, tmp_path / "made" / "optimum.onnx", FACTS)
    assert (cache.layers, cache.kv_heads, cache.head_dim, cache.token_bytes) == (2, 4, 8, 512)
    before, after = HubModel.load(tmp_path), HubModel.load(tmp_path / "made")
    assert after.info.vocab_size == 104
    assert after.info.max_context == 64
    one, two = (model.open(8).forward(TokenTree.chain([3, 4])).logits for model in (before, after))
    assert one is not None
    assert two is not None
    np.testing.assert_array_equal(one[:, :90], two[:, :90])
    assert np.isneginf(two[:, 90:]).all()


def test_a_graph_that_is_no_decoder_with_past(tmp_path: Path) -> None:
    file = write_tiny_graph(tmp_path) / "optimum.onnx"
    model = onnx.load(file)
    too_many = dataclasses.replace(FACTS, vocab_used=97)
    with pytest.raises(ExportError, match="97 columns"):
        traced.finish(file, tmp_path / "made.onnx", too_many)
    for value in model.graph.input:
        value.name = value.name.replace("past_key_values", "state")
    onnx.save(model, tmp_path / "stateful.onnx")
    with pytest.raises(ExportError, match="not a decoder with past"):
        traced.finish(tmp_path / "stateful.onnx", tmp_path / "made.onnx", FACTS)


def test_what_is_no_graph_is_not_quantised(tmp_path: Path) -> None:
    (tmp_path / "traced.onnx").write_bytes(b"text")
    with pytest.raises(ExportError, match="--weights fp32"):
        traced.quantize(tmp_path / "traced.onnx")
