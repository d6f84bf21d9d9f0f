"""A padding is searched for once, and again when what it depends on has changed.

What a search finds is given here: with the kernels of some processors no padding may be needed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from edgedec.hardware import outcomes
from edgedec.runtimes.onnx import model as onnx_model
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.padding import HERE, NO_PADDING, USUAL_CONTEXT, Padding, Rule
from edgedec.runtimes.onnx.passes import Passes

FOUND = HERE.asked[-1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_tiny_model(tmp_path / "model", "int4", own_rows=True)
    return tmp_path / "model"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every search."""
    made: list[int] = []

    def counted(run: object, vocab_size: int, paddings: Sequence[Padding]) -> Padding | None:
        made.append(1)
        return FOUND if FOUND in paddings else None

    monkeypatch.setattr(onnx_model, "find_padding", counted)
    return made


def test_it_is_searched_for_once(folder: Path, searches: list[int]) -> None:
    for asked in (None, True):  # which is one question of a graph that was exported for it
        assert OnnxModel.load(folder, threads=1, batch_invariant=asked).padding == FOUND
    assert len(searches) == 1


def test_that_none_holds_is_known_too(
    folder: Path, searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = dataclasses.replace(HERE, asked=HERE.asked[:-1])
    monkeypatch.setattr(onnx_model, "HERE", others)
    for _ in range(2):
        assert not OnnxModel.load(folder, threads=1).capabilities.batch_invariant
    assert len(searches) == 1


def touch(folder: Path) -> None:
    weights = folder / "model.onnx.data"
    os.utime(weights, ns=(1, 1))


def rewrite(folder: Path) -> None:
    """Other weights of the same length."""
    write_tiny_model(folder, "int4", seed=1, own_rows=True)


@pytest.mark.parametrize("change", [touch, rewrite])
def test_a_file_that_changed(
    folder: Path, searches: list[int], change: Callable[[Path], None]
) -> None:
    OnnxModel.load(folder, threads=1)
    change(folder)
    OnnxModel.load(folder, threads=1)
    assert len(searches) == 2


def test_other_threads_kernels_and_questions(
    folder: Path, searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model(folder, "int4")
    OnnxModel.load(folder, threads=1)
    OnnxModel.load(folder, threads=2)
    assert len(searches) == 2
    OnnxModel.load(folder, threads=1, batch_invariant=True)
    assert len(searches) == 3
    monkeypatch.setattr(outcomes, "cpu_fields", lambda: {"flags": "fpu"})
    OnnxModel.load(folder, threads=1)
    assert len(searches) == 4
    monkeypatch.setattr(onnx_model.ort, "__version__", "9.9")
    OnnxModel.load(folder, threads=1)
    assert len(searches) == 5


@pytest.fixture
def middling(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph that is large enough for its padding to be timed, and that nobody asked to pad."""
    write_tiny_model(folder, "int4", own_rows=True, padding_asked=False)
    monkeypatch.setattr(onnx_model, "MIDDLE_BYTES", 0)
    return folder


@pytest.mark.parametrize(
    ("large", "cost", "pads"),
    [
        (False, 1.0, True),
        (False, 1.04, True),
        (False, 1.06, False),
        (True, 1.09, True),
        (True, 1.11, False),
    ],
)
def test_what_costs_little_is_used_unasked(
    middling: Path,
    searches: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    large: bool,
    cost: float,
    pads: bool,
) -> None:
    if large:
        monkeypatch.setattr(onnx_model, "LARGE_BYTES", 0)
    monkeypatch.setattr(onnx_model, "HERE", dataclasses.replace(HERE, usual=HERE.asked))
    monkeypatch.setattr(onnx_model, "_cost", lambda graph, padding: cost)
    for _ in range(2):
        model = OnnxModel.load(middling, threads=1)
        assert model.capabilities.batch_invariant == pads
        assert model.padding == (FOUND if pads else NO_PADDING)
    assert len(searches) == 1
    said = [] if pads else [f"a token takes {cost:.2f} times as long"]
    assert [line for one in caplog.messages for line in said if line in one] == said
    assert len(caplog.messages) == len(said)
    # Who asks for it gets it at any cost; a draft, and who may not pad, do not.
    assert OnnxModel.load(middling, threads=1, batch_invariant=True).padding == FOUND
    assert not OnnxModel.load(middling, threads=1, batch_invariant=False).padding.slack
    assert not OnnxModel.load(middling, threads=1, may_pad=False).padding.slack


def test_a_small_graph_is_not_timed(
    folder: Path, searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tiny_model(folder, "int4", own_rows=True, padding_asked=False)
    monkeypatch.setattr(onnx_model, "_cost", lambda graph, padding: pytest.fail("timed"))
    assert OnnxModel.load(folder, threads=1).padding == NO_PADDING
    write_tiny_model(folder, "int4", own_rows=True)  # the control: this one asks for it
    assert OnnxModel.load(folder, threads=1).padding == FOUND


def test_the_cost_of_a_padding_is_that_of_its_rows(middling: Path) -> None:
    model = OnnxModel.load(middling, threads=1, batch_invariant=False)
    assert onnx_model._cost(model.graph, NO_PADDING) == 1
    many = Padding("many", Rule(multiple=12))
    assert onnx_model._cost(model.graph, many) > 0


def test_the_cost_is_that_behind_a_text_of_usual_length(
    middling: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = OnnxModel.load(middling, threads=1, batch_invariant=False)
    read: set[tuple[int, int]] = set()
    run = Passes.run

    def noted(
        self: Passes, tokens: Sequence[int], past: int, *, rows: int = 0, **rest: bool
    ) -> None:
        read.add((past, rows))
        run(self, tokens, past, rows=rows, **rest)

    monkeypatch.setattr(Passes, "run", noted)
    twice = Padding("no lone row in attention", attention=Rule(multiple=2))
    onnx_model._cost(model.graph, twice)
    past = min(USUAL_CONTEXT, model.graph.facts.max_context) - 1 - twice.slack
    assert {(past, 1), (past, 2)} <= read
    assert past > 100
