"""What the adapter reads of a graph that optimum made, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tiny_models import write_tiny_model
from tiny_optimum import VOCAB, write_tiny_graph

from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, InputError, RuntimeUnavailable, SessionError
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx_hub import adapter as optimum
from edgedec.runtimes.onnx_hub.model import HubModel


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_graph(tmp_path_factory.mktemp("written"))


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        HubModel.load(folder)
    message = str(caught.value)
    for word in words:
        assert word in message


def edit(folder: Path, change: Callable[[onnx.ModelProto], Any]) -> None:
    file = folder / "optimum.onnx"
    model = onnx.load(file, load_external_data=False)
    change(model)
    file.write_bytes(model.SerializeToString())


def edit_facts(folder: Path, **changes: Any) -> None:
    def change(model: onnx.ModelProto) -> None:
        (entry,) = model.metadata_props
        found = json.loads(entry.value) | changes
        entry.value = json.dumps({k: v for k, v in found.items() if v is not None})

    edit(folder, change)


def test_found_by_its_name(written: Path) -> None:
    adapter = registry.adapter("onnx-hub")
    model = adapter.load(written, LoadOptions(threads=1))
    assert model.info.vocab_size == VOCAB
    assert not model.capabilities.tree
    assert adapter.devices() == optimum.devices()
    assert {device.runtime for device in adapter.devices()} == {"onnx-hub"}


def test_what_it_states(written: Path) -> None:
    model = HubModel.load(written)
    assert (model.info.name, model.info.eos_ids) == ("tiny", (0,))
    # 2 layers, keys and values, 4 heads of 8 float32; held twice.
    assert model.info.kv_bytes_per_token == 2 * 2 * 2 * 4 * 8 * 4


def test_missing_cut_short_or_garbage(folder: Path) -> None:
    refused(folder / "nowhere", "cannot be read")
    file = folder / "optimum.onnx"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    refused(folder, "optimum.onnx")
    file.write_bytes(np.random.default_rng(0).bytes(4000))
    refused(folder, "damaged")


def test_weights_outside_the_folder(folder: Path) -> None:
    shutil.copy(folder / "optimum.onnx.data", folder.parent / "outside.data")

    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = "../outside.data"

    edit(folder, change)
    refused(folder, "out of its folder")


def test_metadata(folder: Path) -> None:
    edit_facts(folder, vocab_size=VOCAB + 1)
    refused(folder, "not of its graph")
    edit_facts(folder, vocab_size="many")
    refused(folder, "damaged")
    edit_facts(folder, style="onnx")
    refused(folder, "not a graph of the format optimum")
    edit_facts(folder, graph_version=2)
    refused(folder, "upgrade")
    edit(folder, lambda model: model.ClearField("metadata_props"))
    refused(folder, "edgedec export")


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("attention_mask", "token_type_ids"),
        ("position_ids", "cache_position"),
        ("past_key_values.1.value", "past_key_values.1.state"),
        ("present.0.key", "present.0.state"),
        ("logits", "last_hidden_state"),
    ],
)
def test_inputs_and_outputs_of_another_style(folder: Path, name: str, renamed: str) -> None:
    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        for value in (*graph.input, *graph.output):
            value.name = renamed if value.name == name else value.name
        for node in graph.node:
            for side in (node.input, node.output):
                side[:] = [renamed if each == name else each for each in side]

    edit(folder, change)
    refused(folder, "unexpected inputs or outputs")


def test_a_cache_without_fixed_sizes(folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        (value,) = (v for v in model.graph.input if v.name == "past_key_values.0.key")
        value.type.tensor_type.shape.dim[1].dim_param = "heads"

    edit(folder, change)
    refused(folder, "0.key", "shape")


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [("Concat", ["real", "real"]), ("Identity", ["past_key_values.0.key"])],
)
def test_a_cache_that_does_not_grow_by_what_was_read(
    folder: Path, kind: str, inputs: list[str]
) -> None:
    """Memory is bound for what it should be: anything else must end in an error, not beside it."""

    def change(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            for side in (node.input, node.output):
                side[:] = ["real" if name == "present.0.key" else name for name in side]
        axis = {"axis": 2} if kind == "Concat" else {}
        last = onnx.helper.make_node(kind, inputs, ["present.0.key"], **axis)
        model.graph.node.append(last)

    edit(folder, change)
    session = HubModel.load(folder).open(16)
    for _ in range(2):
        with pytest.raises(SessionError, match="could not run a pass"):
            session.forward(TokenTree.chain([1, 2, 3]))
        assert session.length == 0


def test_the_two_styles_know_each_other_apart(folder: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "native")
    with pytest.raises(BundleError, match="format optimum"):
        HubModel.load(tmp_path / "native" / "model.onnx")
    with pytest.raises(BundleError):
        OnnxModel.load(folder / "optimum.onnx")


def test_what_it_cannot_do_is_refused(written: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="batch_invariant"):
        HubModel.load(written, batch_invariant=True)
    with pytest.raises(RuntimeUnavailable, match="NoSuchProvider"):
        HubModel.load(written, providers=["NoSuchProvider"])
    with pytest.raises(InputError, match="kv"):
        registry.load("optimum", written, LoadOptions(kv="q8_0"))
