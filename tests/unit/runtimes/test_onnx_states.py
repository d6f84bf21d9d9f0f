"""Graphs whose layers have a state: what they say of it, and the rows that a session keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tiny_qwen3_5
from tiny_lfm2 import CONFIG
from tiny_models import tiny_checkpoint, write_tiny_model

from edgedec.decoding.prefill import go_back
from edgedec.decoding.session import Rehearsing, Trimmable
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import BundleError, PassFailed, RuntimeUnavailable
from edgedec.export import ExportOptions, export_bundle
from edgedec.runtimes.onnx.graph import GRAPH_VERSION
from edgedec.runtimes.onnx.hybrid import HybridSession
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.recent import RecentRows
from edgedec.runtimes.onnx.recurrent import RecurrentRows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lfm2")
    write_tiny_model(found, **CONFIG)
    return found


@pytest.fixture(scope="module")
def model(folder: Path) -> OnnxModel:
    return OnnxModel.load(folder, threads=1, batch_invariant=True)


def changed(folder: Path, out: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a model with other metadata."""
    graph = onnx.load(folder / "model.onnx", load_external_data=False)
    (entry,) = graph.metadata_props
    facts = json.loads(entry.value)
    change(facts)
    entry.value = json.dumps(facts)
    onnx.save(graph, out / "model.onnx")
    (out / "model.onnx.data").write_bytes((folder / "model.onnx.data").read_bytes())
    return out


@pytest.mark.parametrize(
    "states",
    [
        {"layers": [0, 1, 3], "rows": 2},
        {"layers": [], "rows": 2, "width": 64},
        {"layers": [1, 0, 3], "rows": 2, "width": 64},
        {"layers": [0, 1, 9], "rows": 2, "width": 64},
        {"layers": [0, 1, 2, 3], "rows": 2, "width": 64},
        {"layers": [-1, 1, 3], "rows": 2, "width": 64},
        {"layers": ["0", 1, 3], "rows": 2, "width": 64},
        {"layers": [0, 1, 3], "rows": 0, "width": 64},
        {"layers": [0, 1, 3], "rows": 1 << 40, "width": 64},
        {"layers": [0, 1, 3], "rows": 2, "width": 1 << 40},
        [0, 1, 3],
        7,
    ],
)
def test_states_that_make_no_sense_are_damage(folder: Path, tmp_path: Path, states: Any) -> None:
    damaged = changed(folder, tmp_path, lambda facts: facts.update(states=states))
    with pytest.raises(BundleError, match="its metadata is damaged") as caught:
        OnnxModel.load(damaged)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"layers": [0, 1], "rows": 2, "width": 64}, "unexpected inputs or outputs"),
        ({"layers": [0, 1, 3], "rows": 3, "width": 64}, "does not fit its graph"),
        ({"layers": [0, 1, 3], "rows": 2, "width": 32}, "does not fit its graph"),
        (None, "unexpected inputs or outputs"),
    ],
)
def test_states_of_another_graph(folder: Path, tmp_path: Path, states: Any, words: str) -> None:
    with pytest.raises(BundleError, match=words):
        OnnxModel.load(changed(folder, tmp_path, lambda facts: facts.update(states=states)))


@pytest.fixture(scope="module")
def recurring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("qwen3_5")
    write_tiny_model(found, **tiny_qwen3_5.CONFIG)
    return found


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([4, 16], "its metadata is damaged"),
        ([4, 0, 16], "its metadata is damaged"),
        ([4, "16", 16], "its metadata is damaged"),
        ([1 << 20, 1 << 10, 16], "its metadata is damaged"),
        (7, "its metadata is damaged"),
        ([4, 16, 8], "does not fit its graph"),
        ([], "unexpected inputs or outputs"),
    ],
)
def test_a_state_of_another_shape(recurring: Path, tmp_path: Path, state: Any, words: str) -> None:
    other = changed(recurring, tmp_path, lambda facts: facts["states"].update(state=state))
    with pytest.raises(BundleError, match=words) as caught:
        OnnxModel.load(other)
    assert "\n" not in str(caught.value)


def test_a_version_of_later_is_refused(folder: Path, tmp_path: Path) -> None:
    later = changed(folder, tmp_path, lambda facts: facts.update(graph_version=GRAPH_VERSION + 1))
    with pytest.raises(BundleError, match="graph version 4, this edgedec reads 3: upgrade"):
        OnnxModel.load(later)


def test_a_runtime_without_its_kernels_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is opened, and before anything is written."""
    write_tiny_model(tmp_path / "written", **tiny_qwen3_5.CONFIG)
    enough = tiny_qwen3_5.CONFIG | {"vocab_size": 384}
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", **enough)
    options = ExportOptions(checkpoint, tmp_path / "bundle", parity=False, calibration="none")
    OnnxModel.load(tmp_path / "written", threads=1)
    monkeypatch.setattr("onnxruntime.__version__", "1.24.4")
    words = "need onnxruntime 1.25 or newer, this is 1.24.4: upgrade it"
    with pytest.raises(RuntimeUnavailable, match=words):
        OnnxModel.load(tmp_path / "written", threads=1)
    with pytest.raises(RuntimeUnavailable, match=f"{words}, or use --format gguf"):
        export_bundle(options)
    assert not (tmp_path / "bundle").exists()


# -- rows ---------------------------------------------------------------------------------------


def numbered(start: int, count: int) -> FloatArray:
    """Rows that say where they belong, ``[2, count, 1]``."""
    rows: FloatArray = np.arange(start, start + count, dtype=np.float32)[None, :, None]
    return np.concatenate([rows, rows + 1000])


def test_rows_are_those_of_their_positions_however_they_move() -> None:
    rng, recent = np.random.default_rng(0), RecentRows(2, 2, 1)
    committed = 0
    np.testing.assert_array_equal(recent.before(0), np.zeros((2, 2, 1)))
    for _ in range(300):
        recent.held_from = None if rng.random() < 0.2 else committed
        at = committed
        for _ in range(int(rng.integers(1, 3))):  # passes of a growing chain
            count = int(rng.choice([1, 2, 5, 17, 128]))
            recent.put(numbered(at + 1, count), at)
            at += count
        if recent.held_from is None:
            committed = at
        # Whatever is kept of a round, the rows before it are there.
        for place in {committed, at, int(rng.integers(committed, at + 1))}:
            expected = np.maximum(numbered(place - 1, 2)[:1], 0)
            np.testing.assert_array_equal(recent.before(place)[:1], expected)
        committed = int(rng.integers(committed, at + 1))


def test_rows_that_are_gone_are_not_read() -> None:
    recent = RecentRows(2, 2, 1)
    recent.put(numbered(1, 200), 0)
    assert recent.holds(200)
    assert recent.holds(184)
    assert not recent.holds(183)
    assert not recent.holds(201)
    for at in (183, 201):
        with pytest.raises(ValueError, match="are asked for"):
            recent.before(at)
        with pytest.raises(ValueError, match="are asked for"):
            recent.put(numbered(0, 1), at)
    recent.clear()
    assert recent.holds(0)
    assert not recent.holds(1)


class Passes:
    """A recurrence of sums: a state is that of the tokens before it, which rows are."""

    def __init__(self, recent: RecurrentRows) -> None:
        self.recent = recent

    def run(self, tokens: list[int], at: int, past: list[int]) -> None:
        """Compute tokens behind ``past``, of which the state and the rows must be."""
        recent = self.recent
        kept = recent.before(at)
        pending = kept.shape[1] - 2
        read, before, after = recent.begin(at)
        expected = [0, 0, *past]
        np.testing.assert_array_equal(kept[0, :, 0], expected[len(expected) - 2 - pending :])
        assert read[0, 0] == sum(past[: at - pending])
        start = sum(past)
        if before is not None:
            assert not np.shares_memory(before, read)
            before[...] = start
        assert not np.shares_memory(after, read)
        after[...] = start + sum(tokens)
        rows = [tokens[row] for row in recent.returned(len(tokens))]
        recent.written(np.array(rows, np.float32)[None, :, None], at, len(tokens))


@pytest.mark.parametrize("slots", [1, 48])
def test_states_are_those_of_their_positions(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts, rounds of one or two passes of which any number is kept, and copies after each."""
    monkeypatch.setattr("edgedec.runtimes.onnx.recurrent.ROUND", slots)
    monkeypatch.setattr("edgedec.runtimes.onnx.recent.ROUND", slots)
    rng, recent = np.random.default_rng(0), RecurrentRows(1, 2, 1, (1,))
    passes, text, copies = Passes(recent), list[int](), [(0, recent.copy(0))]
    for _ in range(400):
        kind = rng.random()
        if kind < 0.1:  # a prompt
            tokens = rng.integers(1, 9, rng.choice([1, 2, 5, 128])).tolist()
            recent.held_from = None
            passes.run(tokens, len(text), text)
            text += tokens
        elif kind < 0.2:  # to a copy
            length, copy = copies[int(rng.integers(len(copies)))]
            text = text[:length]
            copies = [one for one in copies if one[0] <= length]
            recent.go(copy, length)
        else:
            recent.held_from, added = len(text), list[int]()
            for _ in range(int(rng.integers(1, 3))):
                tokens = rng.integers(1, 9, rng.integers(1, 6)).tolist()
                passes.run(tokens, len(text) + len(added), text + added)
                added += tokens
            text += added[: int(rng.integers(0, len(added) + 1))]
        assert recent.holds(len(text))
        assert recent.pending(len(text)) <= 10  # only tokens of the last round
        copies.append((len(text), recent.copy(len(text))))


def test_a_pass_that_fails_leaves_the_states_it_began_with() -> None:
    recent = RecurrentRows(1, 2, 1, (1,))
    passes = Passes(recent)
    recent.held_from = None
    passes.run([1, 2, 3], 0, [])
    recent.held_from = 3
    for kept in (0, 2, 5):
        passes.run([4, 5, 6, 7, 8], 3, [1, 2, 3])
        at = 3 + kept
        recent.held_from = at
        for state in recent.begin(at)[1:]:
            if state is not None:
                state[...] = -1
        passes.run([9], at, [1, 2, 3, 4, 5, 6, 7, 8][:at])
        recent.go(None, 0)
        recent.held_from = None
        passes.run([1, 2, 3], 0, [])
        recent.held_from = 3


def test_a_source_that_is_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a state of the tokens that were rejected."""
    monkeypatch.setattr(
        RecurrentRows,
        "_source",
        lambda self, at: self._base if self._after is None else self._after,
    )
    recent = RecurrentRows(1, 2, 1, (1,))
    passes = Passes(recent)
    recent.held_from = 0
    passes.run([1, 2, 3], 0, [])
    with pytest.raises(AssertionError):
        passes.run([4], 1, [1])


# -- sessions -----------------------------------------------------------------------------------


def after(session: HybridSession, token: int = 7) -> FloatArray:
    length = session.length
    logits = session.forward(TokenTree(token)).logits
    assert logits is not None
    found: FloatArray = logits[0].copy()
    session.rollback(length)
    return found


def read(model: OnnxModel, text: list[int]) -> HybridSession:
    session = model.open(250)
    assert isinstance(session, HybridSession)
    session.prefill(text)
    return session


def text(count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(1).integers(0, 96, count)]


def test_every_length_is_reached(model: OnnxModel) -> None:
    """At no cost, by a copy and its tokens, or from a nearer one that is named."""
    tokens = text(200)
    costs = {"none": 0, "some": 0}
    for length in range(0, 200, 5):
        session = read(model, tokens[:40])
        for token in tokens[40:]:
            session.forward(TokenTree(token))
            session.commit([0])
        passes, run = 0, session._run

        def counted(*args: Any, run: Any = run, **more: Any) -> None:
            nonlocal passes
            passes += 1
            run(*args, **more)

        session._run = counted  # type: ignore[method-assign]
        near = go_back(session, length)
        if near < length:  # before the end of the prompt, the first copy
            assert (near, length < 40) == (0, True)
            continue
        costs["some" if passes else "none"] += 1
        session._run = run  # type: ignore[method-assign]
        np.testing.assert_allclose(
            after(session), after(read(model, tokens[:length])), rtol=0, atol=1e-4
        )
    assert costs["none"] > 3
    assert costs["some"] > 12


def test_reading_on_that_fails_leaves_an_empty_session(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = text(120)
    session = read(model, tokens[:20])
    for token in tokens[20:]:
        session.forward(TokenTree(token))
        session.commit([0])

    def failing(*args: Any, **more: Any) -> None:
        raise PassFailed("no memory")

    run = session._run
    monkeypatch.setattr(session, "_run", failing)
    with pytest.raises(PassFailed):
        session.rollback(60)
    monkeypatch.setattr(session, "_run", run)
    assert session.length == 0
    session.prefill(tokens[:9])
    np.testing.assert_array_equal(after(session), after(read(model, tokens[:9])))


def test_a_session_is_itself_after_it_was_measured_and_trimmed(model: OnnxModel) -> None:
    tokens = text(30)
    session = model.open(250)
    assert isinstance(session, HybridSession)
    assert isinstance(session, Rehearsing)
    assert isinstance(session, Trimmable)
    session.rehearse(200, 5)
    session.prefill(tokens)
    session.trim()
    np.testing.assert_array_equal(after(session), after(read(model, tokens)))
