"""Of the last layer, what follows attention computes the rows whose logits are wanted only.

A graph that shows the stream after its last layer computes all rows there, as those of earlier
versions do: both must give the same bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kinds import in_full
from test_golden import CASES, Case

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export.onnx import (
    Emitter,
    GraphOptions,
    layer_feeds,
    stream_names,
    write_model,
)
from edgedec.export.slices import Slices
from edgedec.runtimes.onnx.model import OnnxModel

READ = 20  # tokens of the text that are prefilled; three more are a chain
# Sequential layers, MLPs beside attention with a norm of their own and without, norms after it.
KINDS = ("llama", "gpt_neox", "stablelm-parallel", "gemma2")
QUANTISED = [(name, weights) for name in KINDS for weights in ("int8", "int4")]


def write(case: Case, folder: Path, weights: str = "fp32", *, every_row: bool = False) -> Path:
    folder.mkdir()
    taps = (case.spec.layers,) if every_row else ()
    write_model(case.spec, case.tensors, folder, GraphOptions("tiny", weights=weights, taps=taps))
    return folder


def decoded(case: Case, folder: Path, load: type[OnnxModel] = OnnxModel) -> list[FloatArray]:
    """The logits of a chain after a prefilled prompt, and the cache of both."""
    model = getattr(load, "compile", load.load)(folder, threads=1)
    session = model.open(64)
    session.prefill(case.tokens[:READ])
    chain = TokenTree.chain(case.tokens[READ : READ + 3])
    logits = session.forward(chain).logits
    assert logits is not None
    found = [logits.copy(), session._cache.rows[:, :, : READ + 3].copy()]
    session.close()
    model.close()
    return found


def check_same(case: Case, tmp_path: Path, weights: str, load: type[OnnxModel] = OnnxModel) -> None:
    wanted, every = (
        decoded(case, write(case, tmp_path / str(all_rows), weights, every_row=all_rows), load)
        for all_rows in (False, True)
    )
    for one, other in zip(wanted, every, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        *((name, "fp32") for name in KINDS),
        *in_full([*((name, "fp32") for name in CASES if name not in KINDS), *QUANTISED], 1),
    ],
)
def test_decodes_as_a_graph_that_computes_every_row(
    name: str, weights: str, tmp_path: Path
) -> None:
    check_same(Case(name), tmp_path, weights)


@pytest.mark.parametrize("name", in_full(KINDS))
def test_decodes_the_same_on_openvino(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    from edgedec.runtimes.onnx.openvino.model import OpenVinoModel

    check_same(Case(name), tmp_path, "fp32", OpenVinoModel)


@pytest.mark.parametrize("name", KINDS)
def test_the_stream_of_other_rows_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_the_end(self: Emitter, x: str, out: str) -> str:
        g = self._graph
        back = g.node("BitwiseNot", ["rows"], f"{out}.back")  # row -1 - i for row i
        return g.node("Gather", [x, back], out, axis=1)

    monkeypatch.setattr(Emitter, "_wanted", from_the_end)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        check_same(Case(name), tmp_path, "fp32")


@pytest.mark.parametrize("every_row", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_the_rows_that_the_last_layer_computes(name: str, every_row: bool, tmp_path: Path) -> None:
    case, count, wanted = Case(name), 5, (0, 2)
    spec, last = case.spec, case.spec.layers - 1
    parts = Slices(write(case, tmp_path / "graph", every_row=every_row))
    carried = spec.carried(last)
    streams = {
        name: np.ones((1, count, carried.get(name, spec.hidden)), np.float32)
        for name in stream_names(spec, last)
    }
    feeds = streams | layer_feeds(spec, last, count, "fp32")
    for rows in wanted:
        feeds["rows"] = np.arange(rows)
        (branch,) = parts.run([stream_names(spec, last + 1)[1]], feeds)
        assert branch.shape == (1, count if every_row else rows, spec.hidden)
