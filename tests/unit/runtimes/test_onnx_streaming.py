"""Streamed weights: files that change or fail, threads and memory that are left, what is kept."""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tiny_models import write_tiny_model

from edgedec._support.kept import STATED
from edgedec.bundle.protobuf import message
from edgedec.decoding.tree import TokenTree
from edgedec.errors import (
    BundleError,
    InputError,
    Interrupted,
    MemoryBudgetError,
    PassFailed,
    RuntimeUnavailable,
)
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.streaming import chain, opening, pages, prepared
from edgedec.runtimes.onnx.streaming.cutting import CutGraph
from edgedec.runtimes.onnx.streaming.model import StreamedOnnxModel
from edgedec.runtimes.onnx.streaming.opening import block_sizes
from edgedec.runtimes.onnx.streaming.pager import peak_bytes, streamed_bytes

pytestmark = pytest.mark.skipif("not sys.platform.startswith('linux')", reason="needs Linux")

LARGER = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 512}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model")
    write_tiny_model(where, "fp32", **LARGER)
    return where


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own, whose files it may damage."""
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path))
    return tmp_path / "blocks"


def load(folder: Path, share: float = 0.6) -> OnnxModel:
    memory = int(share * sum(block_sizes(folder / "model.onnx")))
    return StreamedOnnxModel.stream(folder, memory, threads=1, batch_invariant=False)


@pytest.fixture
def model(folder: Path, cache: Path) -> Iterator[OnnxModel]:
    found = load(folder)
    yield found
    found.close()


def step(session: object) -> np.ndarray:
    found = session.forward(TokenTree.chain([3, 4])).logits.copy()
    session.commit([0])
    return found


def steps(session: object, count: int) -> None:
    for _ in range(count):
        step(session)


def weights(cache: Path) -> list[Path]:
    return sorted(cache.glob("*/*.data"), key=lambda path: int(path.stem))


# -- files that change --------------------------------------------------------------------------


def test_a_file_that_shrinks_is_a_clear_error_and_nothing_is_lost(
    model: OnnxModel, folder: Path, cache: Path
) -> None:
    session = model.open(32)
    session.prefill([1, 2, 3])
    step(session)
    os.truncate(weights(cache)[3], 4096)
    with pytest.raises(PassFailed, match=r"3\.data changed .*it has 4096 bytes, expected \d+"):
        step(session)
    assert session.length == 4
    session.close()
    model.close()
    again = load(folder)  # what was damaged is written anew
    step(again.open(32))


def test_a_file_that_is_removed_stays_readable(model: OnnxModel, cache: Path) -> None:
    session = model.open(32)
    expected = [step(session) for _ in range(3)]
    for path in weights(cache):
        path.unlink()
    session.rollback(0)
    np.testing.assert_array_equal([step(session) for _ in range(3)], expected)


def test_a_read_that_fails_is_tried_again(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = model.open(32)
    expected = [step(session) for _ in range(4)]
    real, failed = pages.read, []

    def flaky(file: int, memory: object, offset: int) -> int:
        if len(failed) < 2:
            failed.append(offset)
            raise OSError(errno.EIO, "Input/output error")
        return real(file, memory, offset)

    monkeypatch.setattr(pages, "_PAUSE_S", 0)
    monkeypatch.setattr(pages, "read", flaky)
    session.rollback(0)
    np.testing.assert_array_equal([step(session) for _ in range(4)], expected)
    assert len(failed) == 2


def test_reads_that_go_on_failing_end_the_pass_and_the_next_begins_anew(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = model.open(32)
    session.prefill([1, 2])
    expected = step(session)
    session.rollback(2)

    def broken(file: int, memory: object, offset: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(pages, "_PAUSE_S", 0)
        patch.setattr(pages, "read", broken)
        with pytest.raises(PassFailed, match=r"cannot be read \(Input/output error\)"):
            steps(session, 3)  # the first blocks may have been read before
        saved = io.BytesIO()
        session.save(saved)
    session.rollback(2)
    np.testing.assert_array_equal(step(session), expected)
    saved.seek(0)
    restored = model.open(32)
    restored.load(saved)
    assert restored.length >= 2
    restored.rollback(2)
    np.testing.assert_array_equal(step(restored), expected)


def test_damaged_blocks_are_written_anew(folder: Path, cache: Path) -> None:
    load(folder).close()
    (listed,) = cache.glob(f"*/{STATED}")
    for damage in (lambda: listed.write_text("["), lambda: weights(cache)[0].unlink()):
        damage()
        model = load(folder)
        step(model.open(16))
        model.close()
    assert len([*cache.iterdir()]) == 1, "nothing half-written is left"


def test_weights_changed_in_place_are_not_those_that_were_cut(
    folder: Path, cache: Path, tmp_path: Path
) -> None:
    """Its length, first megabyte and time of writing stay, as after unpacking an archive."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    data = next(copy.glob("*.data"))
    before = data.stat()
    assert len(block_sizes(copy / "model.onnx")) > 1
    with data.open("r+b") as file:
        file.seek(before.st_size - 4096)
        file.write(bytes(2048))
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = load(copy)
    honest = OnnxModel.load(copy, threads=1, batch_invariant=False)
    assert np.array_equal(step(found.open(64)), step(honest.open(64)))
    assert len(list(cache.iterdir())) == 2
    found.close()
    honest.close()


@pytest.mark.parametrize("form", ["data|1;2", "data|a;b;c", "data|"])
def test_packed_weights_in_an_unknown_form_are_a_clear_error(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """As another version of ONNX Runtime may write them."""
    load(folder).close()
    ranges = opening._ranges
    monkeypatch.setattr(opening, "_ranges", lambda p: ranges({**p, "prepacked_0": form}))
    with pytest.raises(RuntimeUnavailable, match="in an unknown form"):
        load(folder)


def test_a_block_removed_meanwhile_is_a_clear_error(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = prepared.prepared(folder / "model.onnx")
    shutil.rmtree(found[0].graph.parent)
    monkeypatch.setattr(opening, "prepared", lambda file: found)
    with pytest.raises(RuntimeUnavailable, match="load the model again"):
        opening.open_streamed(folder / "model.onnx", 1, 1 << 30, ())


def test_a_value_that_cannot_be_handed_on_is_a_clear_error(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(prepared._KINDS, "float")
    with pytest.raises(BundleError, match=r"cannot be cut .* tensor\(float\)"):
        block_sizes(folder / "model.onnx")


def test_a_node_that_makes_nothing_is_a_damaged_graph() -> None:
    graph = message((1, message((4, "Identity"))))
    with pytest.raises(BundleError, match="damaged"):
        CutGraph(message((7, graph)), "model.onnx")


def test_blocks_of_another_version_are_not_used(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.prepared(folder / "model.onnx")
    monkeypatch.setattr(prepared, "cpu_name", lambda: "another processor")
    prepared.prepared(folder / "model.onnx")
    monkeypatch.setattr(prepared.ort, "__version__", "9.9")
    prepared.prepared(folder / "model.onnx")
    assert len([*cache.iterdir()]) == 3


def test_a_cache_that_cannot_be_written_is_a_clear_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("EDGEDEC_CACHE", str(file))
    with pytest.raises(RuntimeUnavailable, match="cannot be kept in the cache"):
        block_sizes(folder / "model.onnx")


def test_what_cannot_be_streamed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryBudgetError, match=r"take up to [\d.]+ MB, give at least as much"):
        StreamedOnnxModel.stream(folder, 10_000)
    with pytest.raises(InputError, match="on the CPU only"):
        StreamedOnnxModel.stream(folder, 10**9, providers=["CUDAExecutionProvider"])
    with pytest.raises(BundleError, match="not an ONNX model"):
        CutGraph(b"\x00damaged", "a file")
    monkeypatch.setattr(pages.sys, "platform", "darwin")
    with pytest.raises(RuntimeUnavailable, match="on Linux only"):
        StreamedOnnxModel.stream(folder, 10**9)


def test_a_model_without_positions_is_streamed(tmp_path: Path) -> None:
    """Granite 4 without rotation: no node reads its position_ids."""
    config = {"model_type": "granitemoehybrid", "layer_types": ["attention"] * 2}
    config |= {"num_local_experts": 0, "shared_intermediate_size": 96}
    write_tiny_model(tmp_path, **config, position_embedding_type="nope")
    found = []
    for model in (load(tmp_path), OnnxModel.load(tmp_path, threads=1, batch_invariant=False)):
        with closing(model), closing(model.open(32)) as session:
            found.append(step(session))
    np.testing.assert_array_equal(*found)


# -- threads and memory -------------------------------------------------------------------------


def _threads() -> int:
    return sum(thread.name == "weights" for thread in threading.enumerate())


def _open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_the_thread_ends_and_files_are_closed_with_the_model(folder: Path, cache: Path) -> None:
    load(folder).close()
    threads, files = _threads(), _open_files()
    for _ in range(3):
        model = load(folder)
        session = model.open(16)
        step(session)
        assert _threads() == threads + 1
        model.close()
        step(session)  # weights are freed with the last session
        session.close()
        assert (_threads(), _open_files()) == (threads, files)


def test_a_model_that_fails_to_open_leaves_nothing(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(folder).close()
    threads, files = _threads(), _open_files()
    monkeypatch.setattr(pages, "mapped", lambda file: [])
    with pytest.raises(RuntimeUnavailable, match="did not map"):
        load(folder)
    assert (_threads(), _open_files()) == (threads, files)


def test_no_growth_after_many_passes(model: OnnxModel) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * pages.PAGE

    session = model.open(200)
    for width in (1, 20, 3):
        session.forward(TokenTree.chain([3] * width))
        session.rollback(0)
    grown = []
    for _ in range(3):  # what else the process does may grow in one of them
        before = resident()
        for _ in range(50):
            step(session)
        grown.append(resident() - before)
    assert min(grown) < 1_000_000, grown  # of weights of 3.6 MB, of which 60% stay


def test_a_wait_for_weights_is_interrupted(
    model: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = model.open(32)
    expected = step(session)
    session.rollback(0)
    gate, real = threading.Event(), pages.read

    def stalled(file: int, memory: object, offset: int) -> int:
        gate.wait(60)
        return real(file, memory, offset)

    monkeypatch.setattr(pages, "read", stalled)
    threading.Timer(0.2, session.interrupt).start()
    with pytest.raises(Interrupted):
        steps(session, 20)
    gate.set()
    session.rollback(0)
    np.testing.assert_array_equal(step(session), expected)


# -- what stays ---------------------------------------------------------------------------------

MB = 1_000_000


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8, 0.99])
def test_as_little_as_possible_is_read(share: float) -> None:
    sizes = [6 * MB, 28 * MB] * 12 + [40 * MB]
    memory = int(share * sum(sizes))
    streamed = streamed_bytes(sizes, memory)
    assert peak_bytes(sizes, streamed) <= memory
    assert all(0 <= part <= size for part, size in zip(streamed, sizes, strict=True))
    least = sum(sizes) - memory
    # Two neighbours' parts are in memory beside what stays, and a step of 64 KB each.
    assert least <= sum(streamed) <= least + 2 * max(streamed) + len(sizes) * (1 << 16)


def test_what_fits_is_not_read_again() -> None:
    assert streamed_bytes([MB, MB], 2 * MB) == [0, 0]
    with pytest.raises(MemoryBudgetError, match=r"2\.0 MB"):
        streamed_bytes([MB] * 5, 2 * MB - 1)
    assert sum(streamed_bytes([MB] * 5, 2 * MB)) == 5 * MB


def test_a_twin_that_does_not_wait_is_noticed(model: OnnxModel) -> None:
    """A chain that does not wait for a block computes with zeros."""
    expected = step(model.open(16))
    real = chain.Pager.take
    try:
        chain.Pager.take = lambda self, block, *more: block or real(self, block, *more)  # type: ignore[assignment, method-assign]
        found = [step(model.open(16)) for _ in range(20)]
    finally:
        chain.Pager.take = real  # type: ignore[method-assign]
    assert not all(np.array_equal(one, expected) for one in found)
