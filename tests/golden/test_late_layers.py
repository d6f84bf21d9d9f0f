"""Layers that only read others' keys compute no row of a prompt but its last."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from test_golden import Case

from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.onnx.emitter import layer_feeds
from edgedec.export.onnx.options import tap_name
from edgedec.export.slices import Slices

COUNT = 9


def feeds(case: Case, rows: int, own_rows: bool) -> dict[str, np.ndarray]:
    """A prompt's inputs; attention's own rows repeat the last one."""
    given = {"input_ids": np.array([case.tokens[:COUNT]])}
    for layer in range(case.spec.layers):
        given |= layer_feeds(case.spec, layer, COUNT, "fp32")
    given["rows"] = np.arange(rows)
    if own_rows:
        padded = COUNT + 2
        given["attention_rows"] = np.minimum(np.arange(padded), COUNT - 1)
        given["attention_bias"] = np.zeros((1, 1, padded, padded), np.float32)
        given["seqlens_k"] = np.array([padded - 1], np.int32)
        given["total_sequence_length"] = np.array(padded, np.int32)
        for name, cache in given.items():
            if name.startswith("past_"):
                given[name] = np.zeros((1, cache.shape[1], padded, cache.shape[3]), np.float32)
    return given


def caches(folder: Path, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a pass leaves in the caches of layers with keys of their own."""
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    known = {one.name for one in session.get_inputs()}
    names = [one.name for one in session.get_outputs() if one.name.startswith("present_")]
    found = session.run(names, {name: one for name, one in given.items() if name in known})
    return dict(zip(names, found, strict=True))


def written(case: Case, folder: Path, **options: object) -> Path:
    write_model(case.spec, case.tensors, folder, GraphOptions("tiny", weights="fp32", **options))
    return folder


@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("name", ["gemma4", "gemma4_text"])
def test_the_last_row_alone_of_a_prompt(name: str, own_rows: bool, tmp_path: Path) -> None:
    case = Case(name)
    folder, last = written(case, tmp_path, own_rows=own_rows), case.spec.layers - 2
    streams = [f"layers.{last}.stream"]
    for rows, computed in ((0, 1), (COUNT, COUNT)):
        (found,) = Slices(folder).run(streams, feeds(case, rows, own_rows))
        assert found.shape == (1, computed, case.spec.hidden)
    whole, prompt = (caches(folder, feeds(case, rows, own_rows)) for rows in (COUNT, 0))
    assert whole.keys() == prompt.keys()
    for layer in case.spec.caching:
        for part in ("key", "value"):
            one = f"present_{part}_{layer}"
            np.testing.assert_array_equal(prompt[one], whole[one])


def test_a_layer_with_keys_of_its_own_computes_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a layer too many among those that only read leaves its rows out."""
    case = Case("gemma4_text")
    monkeypatch.setattr("edgedec.export.onnx.late.late_from", lambda spec: 2)
    found = caches(written(case, tmp_path), feeds(case, 0, False))
    assert not found["present_key_2"][0, 0, :-1].any()


@pytest.mark.parametrize("back", [0, 1])
def test_a_shown_stream_has_all_rows_where_some_logits_are_wanted(
    back: int, tmp_path: Path
) -> None:
    case = Case("gemma4_text")
    tap = case.spec.layers - back
    folder = written(case, tmp_path, taps=(tap,))
    for rows, computed in ((0, 1), (1, COUNT)):
        name = tap_name(case.spec, tap)
        (found,) = Slices(folder).run([name], feeds(case, rows, own_rows=False))
        assert found.shape == (1, computed, case.spec.hidden)
