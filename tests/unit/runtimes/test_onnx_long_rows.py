"""Behind a long text, too, a row's bits do not depend on its pass."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import write_tiny_model
from tiny_variants import VARIANTS

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.runtimes.onnx import model as onnx_model
from edgedec.runtimes.onnx.model import OnnxModel

TILES = "ORT_GQA_DISABLE_FLASH_ATTENTION"
LONG, WIDEST = (500, 560, 700, 820), 8


@pytest.fixture(autouse=True)
def not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(TILES, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    window = {**VARIANTS["gemma3"], "sliding_window": 512}
    write_tiny_model(
        tmp_path, "int8", own_rows=True, hidden_size=256, head_dim=256, num_attention_heads=4,
        num_key_value_heads=1, num_hidden_layers=2, max_position_embeddings=1024, **window,
    )  # fmt: skip
    return tmp_path


def rows(model: OnnxModel, length: int, width: int) -> FloatArray:
    """Logits of some tokens behind ``length`` others, in passes of ``width``."""
    rng = np.random.default_rng(length)
    text = rng.integers(0, model.info.vocab_size, length + 2 * WIDEST).tolist()
    session = model.open(length + 2 * WIDEST)
    session.prefill(text[:length])
    found: list[FloatArray] = []
    for at in range(length, len(text), width):
        part = text[at : at + width]
        scored = session.forward(TokenTree.chain(part), want=Want.LOGITS)
        assert scored.logits is not None
        found.append(scored.logits.copy())
        session.commit(range(len(part)))
    session.close()
    return np.concatenate(found)


@pytest.mark.parametrize("length", LONG)
def test_rows_behind_a_long_text(folder: Path, length: int) -> None:
    model = OnnxModel.load(folder, threads=1, batch_invariant=True)
    alone = rows(model, length, 1)
    for width in (2, 4, WIDEST):
        np.testing.assert_array_equal(rows(model, length, width), alone)
    model.close()


def test_with_tiles_rows_differ(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The control of the test above.
    monkeypatch.setenv(TILES, "0")
    model = OnnxModel.load(folder, threads=1, batch_invariant=True)
    differ = [not np.array_equal(rows(model, n, 4), rows(model, n, 1)) for n in LONG]
    model.close()
    if not any(differ):
        pytest.skip("tiles of keys add in the same order on this processor and version")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What the environment says whenever a graph is opened."""
    found: list[str | None] = []

    def opened(*arguments: Any) -> Any:
        found.append(os.environ.get(TILES))
        return honest(*arguments)

    honest = onnx_model.open_inference
    monkeypatch.setattr(onnx_model, "open_inference", opened)
    monkeypatch.setattr(onnx_model, "open_kept", lambda *_: None)
    return found


@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize("own_rows", [True, False])
def test_graphs_are_opened_without_tiles(
    tmp_path: Path, seen: Sequence[str | None], asked: bool | None, own_rows: bool
) -> None:
    """Those whose rows may be asked to be independent; of small ones, others keep the tiles."""
    write_tiny_model(tmp_path, "int8", own_rows=own_rows)
    OnnxModel.load(tmp_path, threads=1, batch_invariant=asked).close()
    assert seen[-1] == ("1" if own_rows or asked else None)
    assert TILES not in os.environ


def test_a_larger_graph_is_opened_without_tiles_however_it_is_asked_for(
    tmp_path: Path, seen: Sequence[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_model, "MIDDLE_BYTES", 1)
    write_tiny_model(tmp_path, "int8")
    for asked in (None, False):  # plain decoding and drafts compute alike
        OnnxModel.load(tmp_path, threads=1, batch_invariant=asked).close()
    assert set(seen) == {"1"}


def test_what_the_user_has_set_is_left(
    folder: Path, seen: Sequence[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TILES, "0")
    OnnxModel.load(folder, threads=1).close()
    assert set(seen) == {"0"}
    assert os.environ[TILES] == "0"
