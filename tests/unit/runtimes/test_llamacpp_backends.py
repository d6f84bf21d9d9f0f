"""llama.cpp's devices."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")

from tiny_gguf import write_tiny_gguf

from edgedec.errors import BundleError
from edgedec.records.load import LoadOptions
from edgedec.runtimes.llamacpp import backends, opening
from edgedec.runtimes.llamacpp.backends import Backend, find_backends, find_devices


@pytest.fixture
def processor() -> Backend:
    found = [backend for backend in find_backends() if backend.name == "CPU"]
    if not found or not found[0].pointer:
        pytest.skip("this llama.cpp does not tell its devices")
    return found[0]


def test_devices_and_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [
        Backend("Vulkan0", "a card", True, 0),
        Backend("HTP0", "a neural processor", True, 0),
        Backend("BLAS", "its library", False, 0),
        Backend("CPU", "a processor", False, 0),
    ]
    monkeypatch.setattr(backends, "find_backends", lambda: here)
    found = find_devices()
    assert [(d.name, d.kind) for d in found] == [
        ("cpu", "cpu"),
        ("Vulkan0", "gpu"),
        ("HTP0", "npu"),
    ]
    assert found[0].description.endswith("with BLAS")
    assert {d.memory_total for d in found} == {None}


def test_memory_of_a_card(processor: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ggml tells it; the processor's own is the machine's."""
    own = processor.memory
    assert own is not None
    free, total = own
    assert 0 < free <= total
    card = Backend("Vulkan0", "a card", True, processor.pointer)
    monkeypatch.setattr(backends, "find_backends", lambda: [card])
    (device,) = find_devices()
    assert device.memory_total == total
    assert device.memory_free is not None


def test_a_library_without_these_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise AttributeError("ggml_backend_dev_count")

    monkeypatch.setattr(backends, "ggml", missing)
    (only,) = find_backends()
    assert (only.name, only.takes_layers, only.memory) == ("CPU", False, None)


def test_a_backend_of_its_own_that_is_missing() -> None:
    """In a process of its own: a backend is loaded once for all."""
    code = (
        "from edgedec.runtimes.llamacpp import adapter as llamacpp;"
        "print(llamacpp.problems(), len(llamacpp.devices()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GGML_BACKEND_PATH": "/nowhere/libggml-card.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    problems, _, count = done.stdout.strip().rpartition(" ")
    assert int(count) >= 1
    assert "GGML_BACKEND_PATH /nowhere/libggml-card.so does not load: " in problems
    assert done.stderr == ""


def test_backends_beside_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never in the current folder, where llama.cpp itself would load what it finds."""
    folders: list[str] = []
    library = types.SimpleNamespace(
        ggml_backend_reg_count=lambda: len(folders),
        ggml_backend_load_all_from_path=lambda folder: folders.append(os.fsdecode(folder)),
    )
    monkeypatch.setattr(backends, "ggml", lambda: library)
    monkeypatch.setenv("GGML_BACKEND_PATH", "/somewhere/libggml-card.so")
    # Beneath the cache: what this process has loaded stays loaded.
    assert backends.load_plugins.__wrapped__() is None
    (folder,) = folders
    assert Path(folder).is_absolute()
    assert any("llama" in file.name for file in Path(folder).iterdir())


def test_a_model_is_loaded_after_the_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would not find the device that it is to go to."""
    file = write_tiny_gguf(tmp_path / "any.gguf")
    asked = []
    monkeypatch.setattr(opening, "load_plugins", lambda: asked.append("backends"))
    monkeypatch.setattr(opening.api, "llama_model_load_from_file", lambda *_: asked.append("model"))
    with pytest.raises(BundleError):
        opening.open_weights(file, LoadOptions())
    assert asked == ["backends", "model"]
