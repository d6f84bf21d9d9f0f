"""The residual streams that llama.cpp shows are those of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny_checkpoint

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import StateError
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.reference import Reference
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import check, loaded, taps
from edgedec.runtimes.llamacpp.model import LlamaModel

CASES = {
    "llama": {"rope_theta": 20000.0},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "qwen3": {"model_type": "qwen3"},
}
TOKENS = np.random.default_rng(4).integers(0, 340, 30).tolist()
READ = 20
TOLERANCE = 5e-4


def made(folder: Path, **config: object) -> tuple[LlamaModel, Reference]:
    """A random model in llama.cpp, and in numpy."""
    target = tiny_checkpoint(folder / "target", **config)
    options = ExportOptions(
        target, folder / "b", formats=("gguf",), weights="f32", calibration="none", parity=False
    )
    export_bundle(options)
    (file,) = (folder / "b" / "target").glob("*.gguf")
    checkpoint = Checkpoint.open(target)
    model = LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))
    return model, Reference(checkpoint.spec, checkpoint.tensors)


def shown(model: LlamaModel, tokens: list[int], layers: tuple[int, ...]) -> FloatArray:
    """The streams of the whole text, ``[n, layers * hidden]``, of a prefill and a chain."""
    model.show(layers)
    assert model.capabilities.taps == layers
    session = model.open(len(tokens))
    found: list[FloatArray] = []
    session.tap(lambda _, states: found.append(states.copy()))
    session.prefill(tokens[:READ])
    scored = session.forward(TokenTree.chain(tokens[READ:]), want=Want.TOP | Want.STATES)
    assert scored.states is not None
    found.append(scored.states)
    session.close()
    return np.concatenate(found)


@pytest.mark.parametrize("name", CASES)
def test_streams(name: str, tmp_path: Path) -> None:
    model, reference = made(tmp_path, **CASES[name])
    expected = reference.states(TOKENS, (0, 1))
    off = np.abs(shown(model, TOKENS, (0, 1)) - expected).max()
    assert off < TOLERANCE * np.abs(expected).max()


def test_a_file_is_tried_once_for_the_same_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[list[int]] = []
    ask = check.ask_once

    def counted(child: str, task: dict[str, Any], *given: Any, **more: Any) -> Any:
        tried.append(task["layers"])
        return ask(child, task, *given, **more)

    monkeypatch.setattr(check, "ask_once", counted)
    model, _ = made(tmp_path, rope_theta=30000.0)
    for layers in ((0,), (0,), (0, 1), (0,)):
        model.show(layers)
        assert model.capabilities.taps == layers
    assert tried == [[0], [0, 1]]


def test_another_layer_is_noticed(tmp_path: Path) -> None:
    """The control."""
    model, reference = made(tmp_path)
    expected = reference.states(TOKENS, (1,))
    off = np.abs(shown(model, TOKENS, (0,)) - expected).max()
    assert off > 100 * TOLERANCE * np.abs(expected).max()


def test_what_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream behind the last layer; another architecture; a library without the functions."""
    model, _ = made(tmp_path / "llama")
    other, _ = made(tmp_path / "qwen2", model_type="qwen2")
    for one, layers in ((model, (2,)), (model, ()), (other, (1,))):
        one.show(layers)
        assert one.capabilities.taps == ()
    monkeypatch.setattr(loaded, "has_states", lambda: False)
    model.show((1,))
    assert model.capabilities.taps == ()


def test_an_architecture_that_ends_the_process_ends_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As if it had been taken for one that shows its streams."""
    monkeypatch.setattr(taps, "ARCHITECTURES", ("qwen2",))
    model, _ = made(tmp_path, model_type="qwen2")
    model.show((1,))
    assert model.capabilities.taps == ()
    assert "layer input tensor is null" in caplog.text
    session = model.open(8)
    with pytest.raises(StateError, match="shows no states"):
        session.forward(TokenTree(1), want=Want.STATES)
