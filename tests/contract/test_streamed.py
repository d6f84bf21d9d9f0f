"""A model larger than its memory passes the contract, and twins broken on purpose do not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from kinds import again, in_full
from test_exported import VARIANTS
from tiny_models import write_tiny_model

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.streaming import pager
from edgedec.runtimes.onnx.streaming.model import StreamedOnnxModel
from edgedec.runtimes.onnx.streaming.opening import block_sizes
from edgedec.runtimes.onnx.streaming.pager import peak_bytes
from edgedec.testing import SessionContract

pytestmark = pytest.mark.skipif("not sys.platform.startswith('linux')", reason="needs Linux")

# Four layers of 0.4 MB in fp32, so that more blocks than are in memory at once take turns.
LARGER = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 512}


def layers(name: str) -> dict[str, int]:
    """More layers, so that blocks take turns."""
    return {"n_layer": 5} if name == "gpt2" else {"num_hidden_layers": 5}


SHARE = 0.6  # of the weights that memory holds
TOLERANCE = {"fp32": 1e-4, "int4": 0.3, "int8": 0.3}

Load = Callable[..., OnnxModel]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Loads a small model of some format, written once."""
    written: dict[str, Path] = {}

    def load(weights: str, share: float | None = SHARE, **more: bool) -> OnnxModel:
        if weights not in written:
            written[weights] = tmp_path_factory.mktemp(weights)
            write_tiny_model(written[weights], weights, **LARGER)
        folder = written[weights]
        if share is None:
            return OnnxModel.load(folder, threads=1, **more)
        memory = int(share * sum(block_sizes(folder / "model.onnx")))
        return StreamedOnnxModel.stream(folder, memory, threads=1, **more)

    return load


@pytest.fixture(scope="module")
def shared(load: Load) -> Load:
    """Loads a model once: the contract closes its sessions alone."""
    return functools.cache(load)


@pytest.mark.parametrize("weights", again(["fp32", "int4", "int8"]))
class TestStreamed(SessionContract):
    @pytest.fixture
    def model(self, shared: Load, weights: str) -> OnnxModel:
        self.tolerance = TOLERANCE[weights]
        return shared(weights, batch_invariant=False)


def logits(model: OnnxModel) -> FloatArray:
    """Logits of a prompt, of single tokens and of a chain, each rounds' below the last."""
    session = model.open(64)
    session.prefill(range(1, 21))
    rows = []
    for width in (1, 1, 4, 2, 1, 3):
        found = session.forward(TokenTree.chain(range(2, 2 + width))).logits
        assert found is not None
        rows.append(found.copy())
        session.commit([0])
    session.close()
    return np.concatenate(rows)


def test_a_graph_with_taps_is_streamed_and_shows_none(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, "fp32", taps=(0, 2, 4), **LARGER)
    memory = int(SHARE * sum(block_sizes(tmp_path / "model.onnx")))
    streamed = StreamedOnnxModel.stream(tmp_path, memory, threads=1, batch_invariant=False)
    assert streamed.capabilities.taps == ()
    whole = OnnxModel.load(tmp_path, threads=1, batch_invariant=False)
    assert whole.capabilities.taps == (0, 2, 4)
    np.testing.assert_array_equal(logits(streamed), logits(whole))


@pytest.mark.parametrize("weights", ["fp32", "int4", "int8", "int4+int8"])
def test_bits_are_those_of_the_model_in_memory(load: Load, weights: str) -> None:
    whole = load(weights, None, batch_invariant=False)
    streamed = load(weights, batch_invariant=False)
    assert streamed.graph.inference.streamed_bytes > 0
    np.testing.assert_array_equal(logits(streamed), logits(whole))


@pytest.mark.parametrize("name", in_full(sorted(VARIANTS), 3))
def test_every_kind_of_decoder_is_cut(name: str, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, "fp32", **{**VARIANTS[name], **layers(name)})
    file = tmp_path / "model.onnx"
    whole = OnnxModel.load(tmp_path, threads=1, batch_invariant=False)
    sizes = block_sizes(file)
    streamed = StreamedOnnxModel.stream(
        tmp_path, peak_bytes(sizes, sizes), threads=1, batch_invariant=False
    )
    assert 0 < streamed.graph.inference.streamed_bytes <= sum(sizes)
    np.testing.assert_array_equal(logits(streamed), logits(whole))


@pytest.mark.parametrize("weights", ["fp32", "int4"])
def test_rows_of_their_own_are_cut_too(weights: str, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, weights, own_rows=True, **LARGER)
    whole = OnnxModel.load(tmp_path, threads=1, batch_invariant=True)
    memory = int(SHARE * sum(block_sizes(tmp_path / "model.onnx")))
    streamed = StreamedOnnxModel.stream(tmp_path, memory, threads=1, batch_invariant=True)
    assert streamed.padding == whole.padding
    np.testing.assert_array_equal(logits(streamed), logits(whole))


# -- broken twins -------------------------------------------------------------------------------


def test_a_block_that_is_not_loaded_in_time_is_noticed(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = logits(load("fp32", None, batch_invariant=False))
    streamed = load("fp32", batch_invariant=False)
    np.testing.assert_array_equal(logits(streamed), expected)
    monkeypatch.setattr(pager.Stretch, "load", lambda stretch: None)
    assert not np.array_equal(logits(streamed), expected)


def test_a_block_that_is_released_too_early_is_noticed(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = logits(load("fp32", None, batch_invariant=False))
    streamed = load("fp32", batch_invariant=False)
    take = pager.Pager.take

    def early(self: pager.Pager, block: int, *more: object) -> None:
        take(self, block, *more)  # type: ignore[arg-type]
        self._stretches[block].release()

    monkeypatch.setattr(pager.Pager, "take", early)
    assert not np.array_equal(logits(streamed), expected)
