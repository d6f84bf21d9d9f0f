"""What the contract does not say: memory, wide passes, interruption amid a pass, failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_models import write_tiny_model

from edgedec.decoding.session import Want
from edgedec.decoding.tree import FloatArray, TokenTree
from edgedec.errors import SessionError
from edgedec.hardware.device import available_cores
from edgedec.runtimes._ort.opening import default_threads
from edgedec.runtimes.onnx import cache as cache_module
from edgedec.runtimes.onnx.cache import KvCache
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.session import OnnxSession

MB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    folder = tmp_path_factory.mktemp("long")
    write_tiny_model(folder, max_position_embeddings=4096)
    return OnnxModel.load(folder, batch_invariant=False)


def text(model: OnnxModel, count: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(0, model.info.vocab_size, count)]


def logits(session: OnnxSession, tree: TokenTree) -> FloatArray:
    scored = session.forward(tree)
    assert scored.logits is not None
    rows: FloatArray = scored.logits.copy()
    return rows


def held(address: int, size: int) -> int:
    """Bytes of an address range that are in memory, whatever else this process holds."""
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        with Path("/proc/self/pagemap").open("rb") as pages:
            pages.seek(8 * (address // page))
            found = np.frombuffer(pages.read(8 * (size // page)), np.uint64)
    except OSError:
        pytest.skip("no /proc/self/pagemap here")
    return page * int(np.count_nonzero(found >> np.uint64(63)))


def test_memory_follows_what_is_written() -> None:
    cache = KvCache((8, 4, 65536, 16), np.float32)
    where = cache.rows.ctypes.data, cache.rows.nbytes
    assert where[1] == 128 * MB
    assert held(*where) < MB
    cache.rows[:, :, :1024] = 1
    assert MB < held(*where) < 6 * MB
    cache.rows[...] = 1  # the control: what is measured is this memory
    assert held(*where) > 120 * MB
    cache.close()
    assert held(*where) < 4 * MB


def test_a_session_closed_gives_its_memory_back(model: OnnxModel) -> None:
    session = model.open(4096)
    session.prefill(text(model, 2048))
    cache = session._cache
    session.close()
    assert cache.rows.nbytes == 0
    assert cache._map is None


@pytest.mark.parametrize("mapped", [True, False])
def test_moving_rows_that_overlap(mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not mapped:  # as where the system cannot reserve address space
        monkeypatch.setattr(cache_module, "reserve", lambda size: None)
    cache = KvCache((2, 1, 8, 1), np.float32)
    cache.rows[...] = np.arange(8, dtype=np.float32)[:, None]
    cache.move([2, 3, 5, 6], 2)
    assert cache.rows[1, 0, :, 0].tolist() == [0, 1, 2, 3, 5, 6, 6, 7]
    cache.move([1, 2, 3], 0)
    assert cache.rows[0, 0, :, 0].tolist() == [1, 2, 3, 3, 5, 6, 6, 7]
    cache.close()


def test_wide_and_many_passes(model: OnnxModel) -> None:
    words = text(model, 700)
    whole, parts = model.open(700), model.open(700)
    expected = logits(whole, TokenTree.chain(words))
    at = 0
    for width in [*range(1, 36), 1, 2, 67]:  # more widths than bindings are kept for
        got = logits(parts, TokenTree.chain(words[at : at + width]))
        np.testing.assert_allclose(got, expected[at : at + width], rtol=0, atol=1e-4)
        parts.commit(list(range(width)))
        at += width
    assert at == 700


def test_prefill_of_every_length(model: OnnxModel) -> None:
    words = text(model, 300)
    session = model.open(300)
    expected = logits(session, TokenTree.chain(words))
    session.rollback(0)
    for length in (1, 2, 127, 128, 129, 256, 257):
        session.prefill(words[:length])
        got = logits(session, TokenTree(words[length]))
        np.testing.assert_allclose(got[0], expected[length], rtol=0, atol=1e-4)
        session.rollback(0)


def test_a_bush_of_a_hundred_nodes(model: OnnxModel) -> None:
    words, rng = text(model, 120), np.random.default_rng(3)
    tree = TokenTree(words[0])
    for word in words[1:100]:
        tree.add(word, int(rng.integers(0, len(tree))))
    session = model.open(400)
    session.prefill(words[100:])
    got = logits(session, tree)
    session.rollback(len(words[100:]))
    for node in range(0, 100, 9):
        path = tree.path_to(node)
        alone = logits(session, TokenTree.chain(tree.tokens_on(path)))
        np.testing.assert_allclose(got[node], alone[-1], rtol=0, atol=1e-4)
        session.rollback(len(words[100:]))


def test_a_pass_that_fails_leaves_the_session_usable(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = text(model, 9)
    tree = TokenTree(words[6])
    tree.add(words[7], 0)
    tree.add(words[8], 0)
    session = model.open(64)
    session.prefill(words[:6])
    expected = logits(session, tree)
    session.rollback(6)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory\nand more lines")

    run = session._passes._run
    monkeypatch.setattr(session._passes, "_run", fail)
    for call in (lambda: session.forward(tree), lambda: session.prefill(words)):
        with pytest.raises(SessionError, match=r"out of memory$"):
            call()
    monkeypatch.setattr(session._passes, "_run", run)
    assert session.length == 6
    np.testing.assert_array_equal(logits(session, tree), expected)


def test_a_failed_branch_leaves_no_mask_behind(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = text(model, 9)
    session, other = model.open(64), model.open(64)
    for each in (session, other):
        each.prefill(words[:5])
    fork, comb = TokenTree(words[5]), TokenTree(words[5])
    for parent in (0, 0, 1):
        fork.add(words[6], parent)
    for parent in (0, 1, 0):
        comb.add(words[6], parent)
    with monkeypatch.context() as patch:
        patch.setattr(session._passes, "_run", lambda *_: 1 / 0)
        with pytest.raises(SessionError):
            session.forward(fork)
    np.testing.assert_array_equal(logits(session, comb), logits(other, comb))


def test_views_hold_until_the_next_pass(model: OnnxModel) -> None:
    session = model.open(64)
    first = session.forward(TokenTree(1), want=Want.TOP)
    assert first.logits is None
    ids = first.top_ids.copy()
    session.commit([0])
    np.testing.assert_array_equal(first.top_ids, ids)


def test_threads_by_default() -> None:
    assert default_threads(10_000) == 1
    assert 1 <= default_threads(3_000_000) <= 2
    assert default_threads(1 << 40) == available_cores()


ADDED = """
import os, sys
from pathlib import Path
from edgedec.runtimes.onnx.model import OnnxModel

for threads in (1, 2, 4):
    before = len(os.listdir("/proc/self/task"))
    model = OnnxModel.load(Path(sys.argv[1]), batch_invariant=False, threads=threads)
    model.open(64).prefill([1, 2, 3])
    print(len(os.listdir("/proc/self/task")) - before)
    model.close()
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc here")
def test_a_model_computes_with_as_many_threads_as_it_was_given(tmp_path: Path) -> None:
    """In a process that starts no other; the one that asks is among them."""
    write_tiny_model(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", ADDED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["0", "1", "3"]
