"""Mapped weights whose file is removed or replaced while a model is open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gguf import write_tiny_gguf
from tiny_models import write_tiny_model

from edgedec.decoding.tree import TokenTree
from edgedec.gguf.parts import named_parts
from edgedec.records.load import LoadOptions
from edgedec.runtimes._ort import packed
from edgedec.runtimes.onnx.model import OnnxModel
from edgedec.runtimes.onnx.preparing import prepare

pytestmark = pytest.mark.skipif("not sys.platform.startswith('linux')", reason="needs Linux")

SIZES = {"hidden_size": 256, "intermediate_size": 512, "max_position_embeddings": 2048}


def onnx(folder: Path) -> tuple[Any, Path]:
    write_tiny_model(folder / "onnx", "fp32", **SIZES)
    return OnnxModel.load(folder / "onnx", threads=1), folder / "onnx" / "model.onnx.data"


def mapped_and_packed(folder: Path) -> tuple[Any, Path]:
    write_tiny_model(folder / "packed", "int4", own_rows=True, **SIZES)
    prepare(folder / "packed")
    (file,) = (folder / "cache").glob(f"packed/*/{packed.WEIGHTS}")
    return OnnxModel.load(folder / "packed", threads=1), file


def gguf(folder: Path) -> tuple[Any, Path]:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
    from edgedec.runtimes.llamacpp.model import LlamaModel

    file = write_tiny_gguf(folder / "model.gguf", hidden=256)
    return LlamaModel.load(file), file


MAKERS = [onnx, mapped_and_packed, gguf]
Opened = tuple[Any, Path, Callable[[Path], tuple[Any, Path]]]


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opened]:
    """A model, the file that it has mapped, and how to load it again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packed, "LEAST_BYTES", 1)
    model, file = request.param(tmp_path)
    assert f" {file}\n" in Path("/proc/self/maps").read_text(), "what is tested here is mapped"
    yield model, file, request.param
    model.close()


def step(session: Any) -> np.ndarray:
    found = session.forward(TokenTree.chain([3, 4])).logits.copy()
    session.commit([0])
    return found


def test_a_file_that_vanishes_or_is_replaced_stays_readable(opened: Opened, tmp_path: Path) -> None:
    model, file, _ = opened
    session = model.open(64)
    expected = [step(session) for _ in range(3)]
    session.rollback(0)
    file.unlink()
    file.write_bytes(b"something else")
    np.testing.assert_array_equal([step(session) for _ in range(3)], expected)
    session.close()


def test_all_parts_of_a_split_file_are_named(tmp_path: Path) -> None:
    for name in ("a-00001-of-00003.gguf", "a-00002-of-00003.gguf", "a-00003-of-00003.gguf"):
        (tmp_path / name).touch()
    found = named_parts(tmp_path / "a-00001-of-00003.gguf")
    assert [file.name[2:7] for file in found] == ["00001", "00002", "00003"]
    assert named_parts(tmp_path / "b.gguf") == [tmp_path / "b.gguf"]


def test_a_gguf_that_was_read_may_change(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (make gguf)")
    from edgedec.runtimes.llamacpp.model import LlamaModel

    file = write_tiny_gguf(tmp_path / "model.gguf")
    model = LlamaModel.load(file, LoadOptions(mmap=False))
    session = model.open(16)
    expected = step(session)
    session.rollback(0)
    os.truncate(file, 0)
    np.testing.assert_array_equal(step(session), expected)
    session.close()
    model.close()
