"""Graphs of static shape that are damaged, or not what their facts say, are refused in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from tiny_models import write_tiny_graphs, write_tiny_model

from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, CapacityExceeded, InputError, StateError
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.onnx_static.describe import describe
from edgedec.runtimes.onnx_static.model import StaticModel


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    write_tiny_graphs(folder, rows=(1, 4))
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(written, tmp_path / "model"))


def change(file: Path, edit: Callable[[onnx.ModelProto, dict[str, Any]], None]) -> None:
    """Rewrite a graph and its facts."""
    model = onnx.load(file, load_external_data=False)
    (entry,) = model.metadata_props
    facts = json.loads(entry.value)
    edit(model, facts)
    entry.value = json.dumps(facts)
    file.write_bytes(model.SerializeToString())


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as raised:
        StaticModel.load(folder, threads=1)
    message = str(raised.value)
    for each in words:
        assert each in message


def test_it_loads(folder: Path) -> None:
    model = StaticModel.load(folder, threads=1)
    assert model.capabilities.row_widths == (1, 4)
    assert model.info.max_context == 256
    assert StaticModel.load(folder / "static-1.onnx").fingerprint == model.fingerprint
    model.close()
    with pytest.raises(StateError, match="the model is closed"):
        model.open(8)


def test_a_context_beyond_the_cache(folder: Path) -> None:
    with pytest.raises(CapacityExceeded, match=r"a capacity of 1\.\.256 tokens, got 257"):
        StaticModel.load(folder, threads=1).open(257)


@pytest.mark.parametrize("name", ["static-4.onnx", "static-read-128.onnx"])
def test_a_width_that_the_bundle_lacks(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name, "cannot be read: No such file")


def test_graphs_of_two_models(folder: Path, tmp_path: Path) -> None:
    write_tiny_graphs(tmp_path / "other", rows=(1, 4), rope_theta=5000.0)
    shutil.copy(tmp_path / "other" / "static-4.onnx", folder)
    refused(folder, "static-4.onnx: it is not of the same model as the other graphs")


def test_weights_cut_short(folder: Path) -> None:
    data = folder / "static.data"
    data.write_bytes(data.read_bytes()[:-100])
    refused(folder, "static.data", "cut short, export it again")


def test_a_graph_of_another_form(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    (tmp_path / "model.onnx").rename(tmp_path / "static-1.onnx")
    refused(tmp_path, "not a graph of static shape")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"graph_version": 9}, "graph version 9, this edgedec reads 1"),
        ({"rows": [4, 1]}, "widths that ascend from 1"),
        ({"rows": [1, 4, 512]}, "at most the 256 slots of the cache"),
        ({"slots": 128}, "max_context"),
        ({"slots": 512}, "bias is float"),
        ({"layers": 3}, "is missing, its facts say"),
        ({"vocab_size": 97}, "logits is float"),
        ({"vocab_used": 1000}, "at most 96"),
        ({"kv_heads": 1 << 40}, "kv_heads"),
        ({"kv_heads": 1 << 24, "head_dim": 1 << 24}, "a cache of at most"),
        ({"ropes": [{"frequencies": ["a"], "magnitude": 1}]}, "ropes"),
        ({"windows": [-1]}, "windows"),
        ({"eos_ids": None}, "eos_ids"),
    ],
)
def test_facts_that_are_not_the_graphs(folder: Path, facts: dict[str, Any], words: str) -> None:
    for file in folder.glob("*.onnx"):
        change(file, lambda model, found: found.update(facts))
    refused(folder, words)


def test_a_graph_of_another_width(folder: Path) -> None:
    shutil.copy(folder / "static-1.onnx", folder / "static-4.onnx")
    session = StaticModel.load(folder, threads=1).open(64)
    with pytest.raises(BundleError, match=r"static-4\.onnx: bias is float\[1, 1, 257\], its facts"):
        session.forward(TokenTree.chain([1, 2, 3]))


def test_options_that_it_does_not_take(folder: Path) -> None:
    with pytest.raises(InputError, match="weight_memory"):
        registry.load("onnx-static", folder, LoadOptions(weight_memory=1 << 20))


def test_weights_in_a_file_that_is_not_listed(folder: Path) -> None:
    files = sorted(folder.iterdir())
    registry.admit("onnx-static", folder / "static-1.onnx", files)
    with pytest.raises(BundleError, match="which the manifest does not list"):
        registry.admit(
            "onnx-static", folder / "static-1.onnx", [f for f in files if f.suffix == ".onnx"]
        )


def test_they_are_described(folder: Path) -> None:
    assert describe(folder / "static-1.onnx") == [
        "graphs of static shape: passes of 1, 4 rows, a prompt in chunks of 128",
        "context 256 tokens, cache float32[4, 2, 256, 16]",
    ]
