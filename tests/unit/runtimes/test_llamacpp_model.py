"""Loading GGUF: facts, choices, what is refused and in which words, and silence."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: extra gguf")
pytest.importorskip("gguf", reason="gguf is not installed: extra gguf")

from tiny_gguf import CONTEXT, EOS, EOT, VOCAB, write_tiny_gguf

from edgedec.decoding.session import Rollback, Want
from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, EdgedecError, InputError, RuntimeUnavailable
from edgedec.hardware.device import available_cores
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.llamacpp import adapter as llamacpp
from edgedec.runtimes.llamacpp import model, opening
from edgedec.runtimes.llamacpp.backends import Backend, find_backends
from edgedec.runtimes.llamacpp.facts import least_cells
from edgedec.runtimes.llamacpp.library import api
from edgedec.runtimes.llamacpp.model import LlamaModel, default_threads


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


# -- facts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["llama", "gemma2"])
@pytest.mark.parametrize(
    ("kv", "bytes_of_32"), [("f32", 128), ("f16", 64), ("q8_0", 34), ("q4_0", 18)]
)
def test_facts(tmp_path: Path, arch: str, kv: str, bytes_of_32: int) -> None:
    model = LlamaModel.load(
        write_tiny_gguf(tmp_path / "a.gguf", arch, layers=3), LoadOptions(threads=1, kv=kv)
    )
    info = model.info
    assert (info.name, info.vocab_size, info.max_context) == (f"tiny-{arch}", VOCAB, CONTEXT)
    assert info.eos_ids == (EOS, EOT)
    # Three layers, keys and values, two heads of 32.
    assert info.kv_bytes_per_token == 3 * 2 * 2 * bytes_of_32
    stored = (tmp_path / "a.gguf").stat().st_size
    assert 0.9 * stored < info.weight_bytes < stored
    assert model.capabilities.rollback is Rollback.ANY
    assert model.capabilities.tree
    assert model.capabilities.snapshot


def test_kv_is_f16_unless_chosen(file: Path) -> None:
    chosen, default = (LlamaModel.load(file, LoadOptions(kv=kv)) for kv in ("f16", None))
    assert default.info.kv_bytes_per_token == chosen.info.kv_bytes_per_token


def test_a_recurrent_model_has_no_bytes_per_token(tmp_path: Path) -> None:
    model = LlamaModel.load(write_tiny_gguf(tmp_path / "a.gguf", "mamba"), LoadOptions(threads=1))
    assert model.info.kv_bytes_per_token == 0
    assert model.capabilities.rollback is Rollback.REPLAY


def test_a_large_capacity_costs_nothing_until_used(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "a.gguf", context=1 << 30)
    session = LlamaModel.load(file, LoadOptions(threads=1)).open(1 << 30)  # 512 GB, were it so
    session.prefill([5, 6, 7])
    assert session._context is not None
    assert session._context.cells < 2000


@pytest.mark.parametrize(("capacity", "long"), [(900, False), (1023, False), (1024, True)])
def test_longrope_never_changes_sides(
    tmp_path: Path, capacity: int, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp chooses its angles by the context's size, so a text must not see it change."""
    monkeypatch.setattr("edgedec.runtimes.llamacpp.session._FIRST_CELLS", 64)
    two = write_tiny_gguf(tmp_path / "a.gguf", trained_context=1024, context=1 << 20)
    model = LlamaModel.load(two, LoadOptions(threads=1))

    def sides() -> set[bool]:
        session, seen = model.open(capacity), set()
        for _ in range(3):
            session.prefill([5] * (capacity // 3))
            assert session._context is not None
            seen.add(api.llama_n_ctx(session._context.pointer) > 1024)
        return seen

    assert sides() == {long}
    if long:
        monkeypatch.setattr(LlamaModel, "least_cells", lambda self, capacity: 1)
        assert sides() == {False, True}  # what this test is there to see


def test_longrope_takes_no_more_than_its_first_training_at_once(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "a.gguf", trained_context=1024, context=1 << 30)
    session = LlamaModel.load(file, LoadOptions(threads=1)).open(1 << 30)
    assert session._context is not None
    assert session._context.cells == 1024


def test_only_longrope_needs_many_cells_at_once() -> None:
    key = "llama.rope.scaling."
    said = {"general.architecture": "llama", f"{key}original_context_length": "1024"}
    weights: Any = SimpleNamespace(text=lambda name: said.get(name))
    assert [least_cells(weights, capacity) for capacity in (1000, 2000)] == [1, 1024]
    for kind, cells in (("longrope", 1024), ("yarn", 1), ("linear", 1)):
        said[f"{key}type"] = kind
        assert least_cells(weights, 2000) == cells


def test_columns_that_are_no_token(tmp_path: Path) -> None:
    model = LlamaModel.load(write_tiny_gguf(tmp_path / "a.gguf", unused=10), LoadOptions(threads=1))
    scored = model.open(8).forward(TokenTree.chain([5, 6]))
    assert scored.logits is not None
    assert np.isneginf(scored.logits[:, -10:]).all()
    assert np.isfinite(scored.logits[:, :-10]).all()
    assert scored.top_ids.max() < VOCAB - 10


@pytest.mark.parametrize(("name", "hidden"), [("[PAD", True), ("<unused", False)])
def test_tokens_named_unused_are_tokens(tmp_path: Path, name: str, hidden: bool) -> None:
    # llama.cpp gives both the attribute of padding.
    file = write_tiny_gguf(tmp_path / "a.gguf", unused=10, unused_name=name)
    model = LlamaModel.load(file, LoadOptions(threads=1))
    logits = model.open(8).forward(TokenTree.chain([5, 6])).logits
    assert logits is not None
    assert np.isneginf(logits[:, -10:]).all() == hidden
    assert np.isfinite(logits).all() != hidden


def test_logits_are_shown_when_wanted(file: Path) -> None:
    session = LlamaModel.load(file, LoadOptions(threads=1)).open(8)
    assert session.forward(TokenTree(5), want=Want.TOP).logits is None


# -- choices ------------------------------------------------------------------------------------


def test_threads(file: Path) -> None:
    context = LlamaModel.load(file, LoadOptions(threads=1, batch_threads=2)).new_context(8)
    assert api.llama_n_threads(context.pointer) == 1
    assert api.llama_n_threads_batch(context.pointer) == 2
    assert LlamaModel.load(file, LoadOptions()).info.threads == 1, "too small to share"
    assert default_threads(1 << 30) == available_cores()
    model = LlamaModel.load(file, LoadOptions(threads=1))
    assert api.llama_n_threads_batch(model.new_context(8).pointer) == 1


@pytest.mark.parametrize(
    "options", [{"mmap": True}, {"mmap": False}, {"repack": True}, {"device": "cpu"}]
)
def test_choices_that_change_no_number(file: Path, options: dict[str, object]) -> None:
    plain = LlamaModel.load(file, LoadOptions(threads=1)).open(8).forward(TokenTree(5))
    model = LlamaModel.load(file, LoadOptions(threads=1, **options))  # type: ignore[arg-type]
    chosen = model.open(8).forward(TokenTree(5))
    np.testing.assert_array_equal(plain.top_ids, chosen.top_ids)
    np.testing.assert_array_equal(plain.top_logits, chosen.top_logits)


@pytest.mark.parametrize(("repack", "reordered"), [(None, True), (True, True), (False, False)])
def test_repacking_is_a_choice(
    file: Path, repack: bool | None, reordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it llama.cpp is told to leave the weights as the file has them."""
    monkeypatch.setattr(opening, "reorders_weights", lambda: True)
    given: list[bool] = []
    honest = api.llama_model_load_from_file

    def load(path: bytes, params: Any) -> Any:
        given.append(params.use_extra_bufts)
        return honest(path, params)

    monkeypatch.setattr(api, "llama_model_load_from_file", load)
    own = {} if repack is None else {"repack": repack}
    LlamaModel.load(file, LoadOptions(threads=1, **own))  # type: ignore[arg-type]
    assert given == [reordered]


def test_flash_attention_is_a_choice(file: Path) -> None:
    rows = []
    for chosen in (True, False):
        options = LoadOptions(threads=1, kv="f16", flash_attention=chosen)
        session = LlamaModel.load(file, options).open(32)
        session.prefill(list(range(5, 25)))
        rows.append(session.forward(TokenTree(5)).top_logits)
    assert np.abs(rows[0] - rows[1]).max() < 0.05
    assert (rows[0] != rows[1]).any(), "the choice does not reach llama.cpp"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"providers": ("CPUExecutionProvider",)}, InputError, "providers"),
        ({"kv": "q8_0", "flash_attention": False}, InputError, "flash attention"),
        ({"device": "CUDA9"}, RuntimeUnavailable, "it has CPU"),
    ],
)
def test_choices_that_are_refused(
    file: Path, options: dict[str, object], error: type[EdgedecError], words: str
) -> None:
    with pytest.raises(error, match=words):
        registry.load("gguf", file, LoadOptions(**options))  # type: ignore[arg-type]


def test_layers_need_a_device(file: Path) -> None:
    LlamaModel.load(file, LoadOptions(threads=1, gpu_layers=0))
    if any(device.takes_layers for device in find_backends()):
        pytest.skip("this llama.cpp has a device beside the processor")
    with pytest.raises(RuntimeUnavailable, match="no device"):
        LlamaModel.load(file, LoadOptions(gpu_layers=3))


def test_flash_attention_is_off_on_a_processor(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**options: object) -> bool | None:
        return model.usual_settings(LoadOptions(**options), 1).flash_attention  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "find_backends", lambda: [Backend("CPU", "", False, 1)])
    assert chosen() is chosen(kv="f32") is False
    assert chosen(kv="q8_0") is None
    assert chosen(flash_attention=True) is True
    both = [Backend("CPU", "", False, 1), Backend("Vulkan0", "", True, 2)]
    monkeypatch.setattr(opening, "find_backends", lambda: both)
    assert chosen() is chosen(device="Vulkan0") is None
    assert chosen(device="CPU") is chosen(gpu_layers=0) is False


def test_a_device_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [
        Backend("CPU", "a processor", False, 1),
        Backend("BLAS", "its library", False, 2),
        Backend("Vulkan0", "a card", True, 3),
        Backend("Vulkan1", "another", True, 4),
    ]
    monkeypatch.setattr(opening, "find_backends", lambda: here)
    choose = opening._choose
    assert choose(LoadOptions()) == choose(LoadOptions(gpu_layers=0)) == []
    assert choose(LoadOptions(gpu_layers=-1)) == here[2:]
    assert choose(LoadOptions(device="vulkan1")) == here[3:]
    assert choose(LoadOptions(device="cpu")) == choose(LoadOptions(device="BLAS")) == []
    with pytest.raises(RuntimeUnavailable, match="CPU, BLAS, Vulkan0, Vulkan1"):
        choose(LoadOptions(device="Vulkan2"))


def test_the_processor_is_a_device() -> None:
    first = llamacpp.devices()[0]
    assert (first.runtime, first.name, first.kind) == ("llamacpp", "cpu", "cpu")
    assert "llama.cpp" in first.description


# -- files --------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(BundleError) as caught:
        LlamaModel.load(path, LoadOptions(threads=1))
    message = str(caught.value)
    return message


def test_a_folder_of_one_file(file: Path, tmp_path: Path) -> None:
    assert "found none" in refused(tmp_path)
    shutil.copy(file, tmp_path / "one.gguf")
    assert LlamaModel.load(tmp_path, LoadOptions(threads=1)).info.name == "tiny-llama"
    shutil.copy(file, tmp_path / "two.gguf")
    assert "one.gguf, two.gguf" in refused(tmp_path)


def test_a_folder_of_a_split_file(file: Path, tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{no}-of-00002.gguf" for no in (1, 2)]
    for part in parts:
        shutil.copy(file, part)
    assert opening.find_file(tmp_path) == parts[0]
    shutil.copy(file, tmp_path / "other.gguf")
    assert "found m-00001-of-00002.gguf, other.gguf" in refused(tmp_path)


def test_a_name_is_one_line(tmp_path: Path) -> None:
    named = write_tiny_gguf(tmp_path / "a.gguf")
    named.write_bytes(named.read_bytes().replace(b"tiny-llama", b"tiny\n\x1b[31m"))
    assert LlamaModel.load(named, LoadOptions(threads=1)).info.name == "tiny??[31m"


def test_files_that_are_no_model(file: Path, tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path / "missing.gguf")
    other = tmp_path / "other.gguf"
    other.write_bytes(b"")
    assert "not a GGUF" in refused(other)
    other.write_bytes(b"PK\x03\x04" + bytes(100))
    assert "not a GGUF" in refused(other)
    whole = file.read_bytes()
    other.write_bytes(whole[: len(whole) // 2])
    assert "llama.cpp cannot load it: " in refused(other)
    # llama.cpp's own words, not only that it failed.
    other.write_bytes(whole.replace(b"blk.0.attn_q.weight", b"blk.0.attn_X.weight"))
    assert "'blk.0.attn_q.weight' not found" in refused(other)
    length = (5).to_bytes(8, "little")
    other.write_bytes(whole.replace(length + b"llama", length + b"lhama", 1))
    assert "unknown model architecture: 'lhama'" in refused(other)


# -- silence and absence ------------------------------------------------------------------------

RUN = """
import sys
from pathlib import Path
from typing import Any
from edgedec.decoding.tree import TokenTree
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.errors import EdgedecError
runtime = registry.adapter("llamacpp")
session = runtime.load(Path(sys.argv[1]), LoadOptions(threads=1)).open(64)
session.prefill([5, 6, 7])
session.forward(TokenTree(8))
try:
    runtime.load(Path(sys.argv[2]), LoadOptions())
except EdgedecError:
    pass
"""


def test_nothing_is_said(file: Path, tmp_path: Path) -> None:
    """Not while loading, running, failing and at the interpreter's end with all still open."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(file.read_bytes()[:2000])
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(file), str(broken)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_who_listens_hears_it(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="edgedec.llamacpp"):
        LlamaModel.load(file, LoadOptions(threads=1))
    assert any("llama_model_loader" in line for line in caplog.messages)
    caplog.clear()
    LlamaModel.load(file, LoadOptions(threads=1))
    assert not caplog.messages


def test_without_the_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, forget: Callable[[Callable[[str], bool]], None]
) -> None:
    forget(lambda name: "llamacpp" in name or "llama_cpp" in name)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(RuntimeUnavailable, match=r"\[gguf\]"):
        registry.adapter("llamacpp")


def test_a_library_that_does_not_load(tmp_path: Path) -> None:
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('Failed to load libllama.so\\nx')")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from edgedec.runtimes import registry\n"
        "from edgedec.errors import RuntimeUnavailable\n"
        "try: registry.adapter('llamacpp')\n"
        "except RuntimeUnavailable as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "does not load: Failed to load libllama.so" in done.stdout
    assert done.stdout.count("\n") == 1
