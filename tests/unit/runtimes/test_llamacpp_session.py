"""What the contract does not say: long windows, wide trees, interruption amid a pass, ends."""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import CONTEXT, WINDOW, write_tiny_gguf

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import (
    Interrupted,
    PassFailed,
    SessionError,
    SnapshotError,
    StateError,
)
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp.context import Batch, Context
from edgedec.runtimes.llamacpp.model import LlamaModel
from edgedec.runtimes.llamacpp.session import Branches, LlamaSession

TOLERANCE = 5e-4
Build = Callable[[str], LlamaModel]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    folder = tmp_path_factory.mktemp("gguf")
    models: dict[str, LlamaModel] = {}

    def build(arch: str) -> LlamaModel:
        if arch not in models:
            file = write_tiny_gguf(folder / f"{arch}.gguf", arch)
            models[arch] = LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))
        return models[arch]

    return build


def text(count: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(4, 96, count)]


def logits(session: LlamaSession, tree: TokenTree, start: int = 0) -> FloatArray:
    scored = session.forward(tree, start)
    assert scored.logits is not None
    rows: FloatArray = scored.logits.copy()
    return rows


def row(model: LlamaModel, tokens: list[int]) -> FloatArray:
    """Logits after ``tokens``, from a session that never went back."""
    session = model.open(len(tokens))
    session.prefill(tokens[:-1])
    return logits(session, TokenTree(tokens[-1]))[0]


def holds(session: LlamaSession, model: LlamaModel, tokens: list[int]) -> bool:
    assert session.length == len(tokens)
    got = logits(session, TokenTree(7))[0]
    session.rollback(len(tokens))
    return bool(np.abs(got - row(model, [*tokens, 7])).max() < TOLERANCE)


def fan(root: int, leaves: int) -> TokenTree:
    """A root, a child, and its many children."""
    tree = TokenTree(root)
    tree.add(5, 0)
    for leaf in range(leaves):
        tree.add(4 + leaf % 90, 1)
    return tree


def comb(root: int, length: int) -> TokenTree:
    """A long chain, with a leaf beside every fifth node."""
    tree = TokenTree(root)
    spine = 0
    for place in range(1, length):
        if place % 5 == 0:
            tree.add(8, spine)
        spine = tree.add(4 + place % 80, spine)
    return tree


# -- going back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["llama", "gemma2"])
@pytest.mark.parametrize("length", [0, 1, WINDOW, 30, 69])
def test_back_beyond_a_window(build: Build, arch: str, length: int) -> None:
    model, tokens = build(arch), text(70)
    session = model.open(256)
    session.prefill(tokens)
    for token in text(5, 1):
        session.forward(TokenTree(token))
        session.commit([0])
    session.rollback(length)
    session.prefill(text(9, 2))
    assert holds(session, model, tokens[:length] + text(9, 2))


def trees_after_going_back(model: LlamaModel) -> bool:
    """Whether a tree is right whose sequences held a text that was cut since."""
    tokens, other = text(20), text(6, 3)
    session = model.open(128)
    session.prefill(tokens)
    session.forward(fan(9, 4))
    session.commit([0])
    session.rollback(8)
    session.prefill(other)
    tree = fan(11, 3)
    got = logits(session, tree)
    expected = [
        row(model, tokens[:8] + other + tree.tokens_on(tree.path_to(n))) for n in range(len(tree))
    ]
    return bool(np.abs(got - np.array(expected)).max() < TOLERANCE)


class ForgetsThatItWentBack(Branches):
    def cut(self, length: int) -> None:
        self.forget()


def test_trees_after_going_back(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trees_after_going_back(build("llama"))
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Branches", ForgetsThatItWentBack)
    with contextlib.suppress(SessionError):  # llama.cpp may notice by itself
        assert not trees_after_going_back(build("llama"))


# -- states -------------------------------------------------------------------------------------


def back_after(build: Build, way: str) -> bool:
    """Whether a copy of a session can go back beyond a window, and on from there."""
    model, tokens = build("gemma2"), text(70)
    session = model.open(256)
    session.prefill(tokens[:40])
    session.prefill(tokens[40:])  # where the cache is small it grows here
    session.forward(fan(9, 4))
    if way == "fork":
        copy = session.fork(60)
    elif way == "grow":
        copy = session
        copy.commit([])
    else:
        file = io.BytesIO()
        session.save(file)
        copy = model.open(200)
        copy.load(io.BytesIO(file.getvalue()))
    for token in text(40, 4):  # new tokens could take the places of those out of the window
        copy.forward(TokenTree(token))
        copy.commit([0])
    copy.rollback(20)
    return holds(copy, model, tokens[:20])


class LeavesTheTextToOneSequence(Branches):
    def hold(self, context: Context, length: int) -> None:
        pass


@pytest.mark.parametrize("way", ["fork", "save", "grow"])
def test_a_copy_goes_back_beyond_a_window(
    build: Build, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "grow":
        monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", 64)
    assert back_after(build, way)
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session.Branches", LeavesTheTextToOneSequence)
    assert not back_after(build, way)


def test_a_state_of_another_kind_is_refused(build: Build, tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "a.gguf")
    one = LlamaModel.load(file, LoadOptions(threads=1, kv="f32"))
    state = io.BytesIO()
    session = one.open(32)
    session.prefill(text(8))
    session.save(state)
    others = [
        LlamaModel.load(file, LoadOptions(threads=1, kv="f16")),
        LlamaModel.load(write_tiny_gguf(tmp_path / "b.gguf", seed=5), LoadOptions(kv="f32")),
        build("gemma2"),
    ]
    for other in others:
        with pytest.raises(SnapshotError, match="another model"):
            other.open(32).load(io.BytesIO(state.getvalue()))
    again = LlamaModel.load(file, LoadOptions(threads=1, kv="f32")).open(32)
    again.load(io.BytesIO(state.getvalue()))
    assert holds(again, one, text(8))


def test_a_forged_length_is_refused(build: Build) -> None:
    """The hash is right, but the state is not of so many tokens."""
    from edgedec.decoding import snapshot

    model = build("llama")
    session = model.open(32)
    session.prefill(text(8))
    state = io.BytesIO()
    for length in (9, 31):
        assert session._context is not None
        snapshot.write(
            state,
            runtime="llamacpp",
            model=model.fingerprint,
            length=length,
            payload=[session._context.state().tobytes()],
        )
        other = model.open(32)
        other.prefill(text(3))
        with pytest.raises(SnapshotError, match="refuses"):
            other.load(io.BytesIO(state.getvalue()))
        assert other.length == 0
        other.prefill(text(5))
        assert holds(other, model, text(5))
        state = io.BytesIO()


def test_a_cache_grows_with_its_text(build: Build) -> None:
    """Not before, and everything in it moves along, a pending tree included."""
    model, tokens = build("llama"), text(CONTEXT - 12)
    session = model.open(CONTEXT)
    assert session._context is not None
    small = session._context.empty(40)
    session._context = small
    session.prefill(tokens[:30])
    assert session._context is small
    tree = fan(9, 4)
    session.forward(tree)
    assert session._context is small
    for leaf in range(20):
        tree.add(4 + leaf, 3)
    got = logits(session, tree, 6)
    grown = session._context
    assert grown is not small
    assert grown.cells < CONTEXT
    for node in (6, 25):
        expected = row(model, tokens[:30] + tree.tokens_on(tree.path_to(node)))
        assert np.abs(got[node - 6] - expected).max() < TOLERANCE
    session.commit([0, 1, 3, 25])
    held = tokens[:30] + tree.tokens_on([0, 1, 3, 25])
    assert holds(session, model, held)
    session.prefill(tokens[: CONTEXT - len(held) - 1])
    assert session._context.cells == CONTEXT
    assert holds(session, model, held + tokens[: CONTEXT - len(held) - 1])


# -- many rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1])
def test_more_rows_than_one_decode_brings(build: Build, start: int) -> None:
    model, tokens = build("llama"), text(10)
    session = model.open(500)
    session.prefill(tokens)
    for tree in (TokenTree.chain(text(150, 5)), fan(9, 60), comb(9, 170)):
        whole = TokenTree(tree.tokens[0])
        first = [logits(session, whole)] if start else []
        for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
            whole.add(token, parent)
        got = np.concatenate([*first, logits(session, whole, start)])
        assert len(got) == len(tree)
        for node in (0, 1, 60, len(tree) // 2, len(tree) - 1):
            expected = row(model, tokens + tree.tokens_on(tree.path_to(node)))
            assert np.abs(got[node] - expected).max() < TOLERANCE
        session.commit(tree.path_to(len(tree) - 1))
        tokens += tree.tokens_on(tree.path_to(len(tree) - 1))
        assert holds(session, model, tokens)


def test_three_rows_are_computed_as_four_where_that_costs_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide: list[int] = []
    decode = Context.decode

    def spy(self: Context, batch: Any) -> None:
        wide.append(batch.n_tokens)
        decode(self, batch)

    monkeypatch.setattr(Context, "decode", spy)
    for repacked in (True, False):
        monkeypatch.setattr(
            "edgedec.runtimes.llamacpp.model.in_fours", lambda _, repacked=repacked: repacked
        )
        model = LlamaModel.load(write_tiny_gguf(tmp_path / "a.gguf"), LoadOptions(kv="f32"))
        session = model.open(256)  # the padding is beyond the last token that fits
        session.prefill(text(253))
        del wide[:]
        rows = logits(session, TokenTree.chain([5, 6, 7]))
        assert wide == [4 if repacked else 3]
        assert len(rows) == 3
        assert np.abs(rows[2] - row(model, [*text(253), 5, 6, 7])).max() < TOLERANCE
        session.commit([0, 1])
        assert holds(session, model, [*text(253), 5, 6])


def test_a_state_is_never_computed_as_four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its passes are compared as they are: it could not drop the fourth row."""
    monkeypatch.setattr("edgedec.runtimes.llamacpp.model.in_fours", lambda _: True)
    file = write_tiny_gguf(tmp_path / "a.gguf", "mamba", "Q8_0")
    model = LlamaModel.load(file, LoadOptions(threads=1))
    session = model.open(64)
    assert logits(session, TokenTree.chain([5, 6, 7])).shape[0] == 3


def test_a_chain_interrupted_in_its_second_part_leaves_what_was_pending(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = build("llama"), text(10)
    session = model.open(400)
    session.prefill(tokens)
    tree = TokenTree.chain([9, 5, 6])
    logits(session, tree)
    for place in range(200):
        tree.add(4 + place % 80, len(tree) - 1)
    with monkeypatch.context() as patch:
        stop_amid(patch, session._context, 1)
        with pytest.raises(Interrupted):
            session.forward(tree, 3)
    got = logits(session, tree, 3)
    for node in (3, 100, 202):
        assert (
            np.abs(got[node - 3] - row(model, tokens + tree.tokens[: node + 1])).max() < TOLERANCE
        )
    session.commit(range(203))
    assert holds(session, model, tokens + tree.tokens)


def test_room_is_made_once_and_given_back(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = build("llama"), text(40)
    session = model.open(CONTEXT)
    first = session.allocated
    monkeypatch.setattr(session, "_first_cells", first // 2)
    session._replace(first // 2)
    opened: list[int] = []
    honest = LlamaModel.new_context

    def counted(self: LlamaModel, cells: int, *stop: Any) -> Context:
        opened.append(cells)
        return honest(self, cells, *stop)

    monkeypatch.setattr(LlamaModel, "new_context", counted)
    stop = session._stop
    session.trim()  # nothing to give back
    session.reserve(first // 2)
    assert opened == []
    session.reserve(first)
    session.reserve(first)
    assert (opened, session.allocated) == ([first], first)
    assert session._open_context().stop is stop, "it can still be interrupted"
    session.prefill(tokens)
    session.trim()  # it holds a text
    assert session.allocated == first
    assert holds(session, model, tokens)
    session.rollback(0)
    session.trim()
    assert session.allocated == first // 2
    logits(session, fan(9, 4))
    session.rollback(0)
    session.prefill(tokens)
    assert holds(session, model, tokens)


def test_room_that_cannot_be_made_leaves_the_session_usable(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = build("llama"), text(20)
    session = model.open(CONTEXT)
    first = session.allocated
    honest = LlamaModel.new_context

    def failing(self: LlamaModel, cells: int, *stop: Any) -> Context:
        if cells > first:
            raise PassFailed("too large")
        return honest(self, cells, *stop)

    monkeypatch.setattr(LlamaModel, "new_context", failing)
    with pytest.raises(PassFailed, match="too large"):
        session._replace(2 * first)
    assert session.allocated == first
    session.prefill(tokens)
    assert holds(session, model, tokens)


def test_a_state_that_cannot_be_written_is_an_error(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgedec.runtimes.llamacpp import context as module

    session = build("llama").open(64)
    session.prefill(text(8))
    monkeypatch.setattr(module.api, "llama_state_get_data", lambda *found: 0)
    with pytest.raises(SessionError, match="could not write its state"):
        session.save(io.BytesIO())


def test_more_branches_than_sequences(build: Build) -> None:
    model, tokens = build("llama"), text(5)
    session = model.open(400)
    session.prefill(tokens)
    with pytest.raises(StateError, match="branches"):
        session.forward(fan(9, 65))
    assert holds(session, model, tokens)
    session.forward(fan(9, 64))
    session.commit([0, 1, 65])
    assert holds(session, model, [*tokens, 9, 5, 4 + 63])


# -- interruption -------------------------------------------------------------------------------


def stop_amid(monkeypatch: pytest.MonkeyPatch, context: Context | None, part: int = 0) -> None:
    """The flag is set when a batch is ready, so that llama.cpp itself is what stops."""
    seen = 0
    for name in ("chain", "branches"):
        original = getattr(Batch, name)

        def wrapped(self: Batch, *args: Any, original: Any = original, **named: Any) -> Any:
            nonlocal seen
            assert context is not None
            if seen == part:
                context.stop.set()
            seen += 1
            return original(self, *args, **named)

        monkeypatch.setattr(Batch, name, wrapped)


@pytest.mark.parametrize("arch", ["llama", "gemma2"])
@pytest.mark.parametrize("part", [0, 1])
def test_interrupted_amid_a_tree(
    build: Build, arch: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pending before stays so, and grows on as if nothing had been."""
    model, tokens = build(arch), text(10)
    session = model.open(400)
    session.prefill(tokens)
    tree = TokenTree(9)
    left, right = tree.add(5, 0), tree.add(6, 0)
    logits(session, tree)
    tree.add(7, left)
    spine = right
    for place in range(200):
        if place % 5 == 4:
            tree.add(8, spine)
        spine = tree.add(4 + place % 80, spine)
    with monkeypatch.context() as patch:
        stop_amid(patch, session._context, part)
        with pytest.raises(Interrupted):
            session.forward(tree, 3)
    got = logits(session, tree, 3)
    for node in (3, 4, 120, 140, spine):
        expected = row(model, tokens + tree.tokens_on(tree.path_to(node)))
        assert np.abs(got[node - 3] - expected).max() < TOLERANCE
    session.commit(tree.path_to(spine))
    assert holds(session, model, tokens + tree.tokens_on(tree.path_to(spine)))


# -- ends ---------------------------------------------------------------------------------------


def test_logits_outlive_their_session(tmp_path: Path) -> None:
    model = LlamaModel.load(write_tiny_gguf(tmp_path / "a.gguf"), LoadOptions(threads=1))
    session = model.open(16)
    scored = session.forward(TokenTree.chain([4, 5]))
    assert scored.logits is not None
    before = scored.logits.copy()
    session.close()
    model.close()
    del session, model
    gc.collect()
    np.testing.assert_array_equal(scored.logits, before)
    assert scored.top_ids.shape == (2, 8)


def test_nothing_is_left_of_a_session(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgedec.runtimes.llamacpp import context as module

    model = build("llama")  # whose loading frees a context of its own
    freed: list[object] = []
    original = module.api.llama_free
    monkeypatch.setattr(module.api, "llama_free", lambda p: freed.append(p) or original(p))
    gc.disable()  # references alone must do
    try:
        session = model.open(16)
        logits(session, fan(5, 3))
        session.close()
        assert len(freed) == 1
    finally:
        gc.enable()
