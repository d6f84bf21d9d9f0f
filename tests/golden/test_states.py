"""The residual streams that a graph shows are those of the reference, for every architecture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_golden import CASES, TOLERANCE, Case

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.export.onnx import GraphOptions, write_model
from edgedec.export.reference import Reference
from edgedec.runtimes.onnx.model import OnnxModel

READ = 20  # tokens of the text that are prefilled; the others are a chain


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def shown(case: Case, folder: Path, taps: tuple[int, ...]) -> FloatArray:
    """The streams of the whole text, ``[n, taps * hidden]``."""
    write_model(case.spec, case.tensors, folder, GraphOptions("tiny", weights="fp32", taps=taps))
    model = OnnxModel.load(folder, threads=1)
    session = model.open(len(case.tokens))
    found: list[FloatArray] = []
    session.tap(lambda _, states: found.append(states.copy()))
    session.prefill(case.tokens[:READ])
    scored = session.forward(TokenTree.chain(case.tokens[READ:]), want=Want.TOP | Want.STATES)
    assert scored.states is not None
    found.append(scored.states.copy())
    session.close()
    model.close()
    return np.concatenate(found)


def test_all_streams(case: Case, tmp_path: Path) -> None:
    taps = tuple(range(case.spec.layers + 1))
    expected = Reference(case.spec, case.tensors).states(case.tokens, taps)
    got = shown(case, tmp_path, taps)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox"])
def test_a_stream_of_the_next_layer_is_noticed(name: str, tmp_path: Path) -> None:
    case = Case(name)
    expected = Reference(case.spec, case.tensors).states(case.tokens, (1,))
    got = shown(case, tmp_path, (2,))
    assert np.abs(got - expected).max() > 100 * TOLERANCE


@pytest.mark.parametrize("weights", ["fp32", "int4"])
def test_logits_do_not_change_by_a_bit(weights: str, tmp_path: Path) -> None:
    """Neither by the outputs that are there, nor by asking for them."""
    case, chain, rows = Case("llama"), TokenTree.chain([5, 17, 30]), []
    for taps, want in (
        ((), Want.LOGITS),
        ((1, 2), Want.LOGITS),
        ((1, 2), Want.LOGITS | Want.STATES),
    ):
        options = GraphOptions("tiny", weights=weights, taps=taps)
        folder = tmp_path / f"{len(rows)}"
        folder.mkdir()
        write_model(case.spec, case.tensors, folder, options)
        model = OnnxModel.load(folder, threads=1)
        session = model.open(64)
        session.prefill(case.tokens[:READ])
        logits = session.forward(chain, want=want).logits
        assert logits is not None
        rows.append(logits.copy())
        session.close()
        model.close()
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])
