"""Each runtime's sessions, interrupted amid a prefill or a pass, or closed while they compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import in_full
from session_kinds import KINDS
from waiting import LIMIT_S

from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import Interrupted, StateError

# Interrupts a session in its run of this number, from 1; returns the runs computed to their end.
Stop = Callable[[Any, int], list[int]]


def at_call(owner: Callable[[Any], Any], name: str) -> Stop:
    """A call of the library's own, of which one begins interrupted."""

    def install(session: Any, number: int) -> list[int]:
        there, ended, begun = owner(session), list[int](), count(1)
        honest = getattr(there, name)

        def call(*args: Any, **named: Any) -> Any:
            if (this := next(begun)) == number:
                session.interrupt()
            found = honest(*args, **named)
            ended.append(this)
            return found

        setattr(there, name, call)
        return ended

    return install


OF_LLAMA = at_call(lambda session: session._context, "decode")
OF_STATIC = at_call(lambda session: session, "_pass")
OF_ORT = at_call(lambda session: session._runner, "_pass")
STOPS = {
    "onnx": OF_ORT, "llama": OF_LLAMA, "optimum": OF_ORT, "static": OF_STATIC, "gemma2": OF_LLAMA,
    "streamed": OF_ORT, "slice": OF_STATIC, "blend": OF_STATIC,
}  # fmt: skip


def loaded(kind: str, folder: Path) -> Any:
    (folder / "draft").mkdir()
    return KINDS[kind](folder)[0]


@pytest.fixture(scope="module", params=in_full(STOPS, 4))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = loaded(kind, tmp_path_factory.mktemp("model"))
    yield found
    found.close()


def text(model: Any, count: int) -> list[int]:
    return np.random.default_rng(1).integers(4, model.info.vocab_size, count).tolist()


def opened(model: Any, kind: str, capacity: int = 200) -> Any:
    session = model.open(capacity)
    if STOPS[kind] is not OF_LLAMA:  # whose chunks are fixed
        session.prefill_chunk = 16
    return session


def logits(session: Any, tree: TokenTree, start: int = 0) -> FloatArray:
    return np.array(session.forward(tree, start).logits)


def test_amid_a_prefill(model: Any, kind: str) -> None:
    """What was read before stays, and reading goes on there."""
    chunk = opened(model, kind).prefill_chunk
    words = text(model, 3 * chunk)
    session, calm = (opened(model, kind, len(words) + 1) for _ in range(2))
    ended = STOPS[kind](session, 2)
    with pytest.raises(Interrupted):
        session.prefill(words)
    assert ended == [1]
    assert session.length == chunk
    session.prefill(words[chunk:])
    calm.prefill(words)
    rows = [logits(one, TokenTree(5)) for one in (session, calm)]
    np.testing.assert_allclose(*rows, rtol=0, atol=1e-4)


def test_amid_a_pass(model: Any, kind: str) -> None:
    """What was pending before stays so, and grows on."""
    words = text(model, 20)
    session, calm = opened(model, kind), opened(model, kind)
    rows = []
    for one in (session, calm):
        one.prefill(words[:8])
        tree = TokenTree.chain(words[8:12])
        logits(one, tree)
        for word in words[12:16]:
            tree.add(word, len(tree) - 1)
        if one is session:
            ended = STOPS[kind](one, 1)
            with pytest.raises(Interrupted):
                one.forward(tree, 4)
            assert (one.length, ended) == (8, [])
        rows.append(logits(one, tree, 4))
        one.commit(range(len(tree)))
        rows.append(logits(one, TokenTree(words[16])))
    np.testing.assert_allclose(rows[0], rows[2], rtol=0, atol=1e-4)
    np.testing.assert_allclose(rows[1], rows[3], rtol=0, atol=1e-4)


def test_one_that_hears_nothing_is_seen(model: Any, kind: str) -> None:
    """The control."""
    session = opened(model, kind)
    session.interrupt = lambda: None
    ended = STOPS[kind](session, 1)
    session.prefill(text(model, 9))
    assert (session.length, ended) == (9, [1])


def test_closed_while_another_thread_computes(model: Any, kind: str) -> None:
    session, ended, reads = opened(model, kind), list[Exception](), threading.Event()

    def read_for_ever() -> None:
        try:
            while True:
                session.prefill(text(model, 150))
                session.rollback(0)
                reads.set()
        except (Interrupted, StateError) as error:
            ended.append(error)

    reader = threading.Thread(target=read_for_ever)
    reader.start()
    assert reads.wait(LIMIT_S)
    session.close()
    reader.join(LIMIT_S)
    assert not reader.is_alive()
    assert len(ended) == 1


def test_a_closed_model_opens_no_session(kind: str, tmp_path: Path) -> None:
    """Sessions that are open keep its weights."""
    model = loaded(kind, tmp_path)
    session, words = model.open(64), text(model, 5)
    session.prefill(words)
    expected = logits(session, TokenTree(5))
    session.rollback(5)
    model.close()
    model.close()
    np.testing.assert_array_equal(logits(session, TokenTree(5)), expected)
    session.close()
    session.interrupt()
    with pytest.raises(StateError, match="closed"):
        model.open(8)
