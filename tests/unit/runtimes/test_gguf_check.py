"""A file nobody opened yet is opened in a child first: it may crash, this process does not."""

import os
import sys
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
from gguf_files import Tensor, gguf_bytes
from tiny_llama import GOOD, TENSORS, TOKENS, VOCABULARY

from edgedec._support import opened_before
from edgedec._support.kept import Record
from edgedec.decoding.tree import TokenTree
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from edgedec.runtimes.llamacpp import adapter, check
from edgedec.runtimes.llamacpp.check import first_open


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Record("checks", "gguf").file


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return gguf_files.write(tmp_path / "good.gguf", GOOD, TENSORS)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were opened in a child, in order."""
    opened: list[Path] = []
    real = check._open_in_child

    def counted(path: Path, timeout_s: float) -> None:
        opened.append(path)
        real(path, timeout_s)

    monkeypatch.setattr(check, "_open_in_child", counted)
    return opened


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read whole, in order."""
    read: list[Path] = []
    real = opened_before._sha256
    monkeypatch.setattr(opened_before, "_sha256", lambda file: [read.append(file), real(file)][1])
    return read


def test_opened_once_and_hashed_once(
    good: Path, children: list[Path], hashed: list[Path], cache: Path
) -> None:
    assert first_open(good).name == "good"
    assert (len(children), len(hashed)) == (1, 1)
    first_open(good)
    assert (len(children), len(hashed)) == (1, 1)
    # The same bytes elsewhere are hashed, no more; and then not even that.
    copy = good.with_name("copy.gguf")
    copy.write_bytes(good.read_bytes())
    first_open(copy)
    first_open(copy)
    assert (len(children), hashed) == (1, [good, copy])
    assert cache.parent.stat().st_mode & 0o077 == 0


def test_bytes_that_changed_behind_the_time_of_writing_are_opened_again(
    good: Path, children: list[Path]
) -> None:
    first_open(good)
    facts = good.stat()
    data = bytearray(good.read_bytes())
    data[-1] ^= 1
    with good.open("r+b") as file:
        file.write(data)
    os.utime(good, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    first_open(good)
    assert len(children) == 2


def test_a_name_that_is_no_utf8(good: Path, children: list[Path]) -> None:
    named = Path(os.fsdecode(bytes(good.parent) + b"/\xff.gguf"))
    try:
        good.rename(named)
    except OSError:
        pytest.skip("this file system has no such names")
    first_open(named)
    assert children == [named]
    model = registry.adapter("llamacpp").load(named, LoadOptions())
    assert model.open(8).forward(TokenTree(1)).top_ids.shape[0] == 1
    model.close()


def test_without_a_folder_for_temporary_files(
    good: Path, children: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", none)
    assert first_open(good).path == good
    assert children == [good]


def test_other_bytes_or_another_version_are_opened_again(
    good: Path, children: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first_open(good)
    good.write_bytes(gguf_bytes({**GOOD, "general.name": "other"}, TENSORS))
    first_open(good)
    assert len(children) == 2
    monkeypatch.setattr(check, "_version", lambda: "99.0")
    first_open(good)
    first_open(good)
    assert len(children) == 3


def test_without_a_cache_it_works_every_time(
    good: Path, children: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = good.with_name("no folder")
    nowhere.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    first_open(good)
    first_open(good)
    assert len(children) == 2


def refusal(file: Path, **options: Any) -> str:
    with pytest.raises(BundleError) as refused:
        first_open(file, **options)
    message = str(refused.value)
    assert message.startswith(f"{file}: ")
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_a_head_that_reads_its_targets_cache_is_refused(
    tmp_path: Path, children: list[Path]
) -> None:
    """llama.cpp loads one, and ends the process when it is given a context."""
    head = gguf_files.write(tmp_path / "a.gguf", {"general.architecture": "gemma4-assistant"})
    assert "reads its target's cache" in refusal(head)
    assert not children


@pytest.mark.parametrize(
    "damage",
    [
        {"sliding_window_pattern": np.ones(2, np.int32)},
        {"shared_kv_layers": "one"},
        {"key_length": ["a"]},
        {"key_length_swa": np.uint64((1 << 64) - 1)},
        {"head_count_kv": np.full(3, np.nan, np.float32)},
        {"shared_kv_layers": 1 << 20},
        {"key_length_swa": np.int32(-64)},
    ],
)
def test_sizes_that_are_damaged_are_left_out(tmp_path: Path, damage: dict[str, Any]) -> None:
    whole = {
        "sliding_window_pattern": np.array([1, 0, 1], np.int32), "head_count_kv": np.ones(3, "i4"),
        "key_length": 32, "key_length_swa": 16, "shared_kv_layers": 1,
    }  # fmt: skip

    def found(attention: dict[str, Any]) -> dict[str, int]:
        named = {f"gemma4.attention.{key}": value for key, value in attention.items()}
        return adapter.sizes(
            gguf_files.write(tmp_path / "a.gguf", {"general.architecture": "gemma4", **named})
        )

    assert found(whole) == {"kv_layers": 2, "kv_channels": 48}
    assert found(whole | damage) != found(whole)
    assert all(size > 0 for size in found(whole | damage).values())


def test_a_crash_is_an_error_of_one_line(tmp_path: Path, cache: Path) -> None:
    """llama.cpp aborts where two tokens are equal; what it says is passed on."""
    twice = {**GOOD, "tokenizer.ggml.tokens": ["a"] * TOKENS}
    message = refusal(gguf_files.write(tmp_path / "twice.gguf", twice, TENSORS))
    assert "crashed with SIGABRT" in message
    assert "GGML_ASSERT" in message
    assert "/llama-vocab.cpp" not in message
    assert not cache.exists()


def overflowing(tensor: Tensor) -> Tensor:
    """Queries and keys whose products are infinite, each number finite."""
    if not any(name in tensor.name for name in ("attn_q", "attn_k")):
        return tensor
    return tensor._replace(data=np.float32(3e38).tobytes() * (len(tensor.data) // 4))


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        (GOOD, TENSORS[1:], "it: check_tensor_dims: tensor 'token_embd.weight' not found"),
        ({**GOOD, "general.architecture": "nobody\n"}, TENSORS, "unknown model architecture"),
        ({**GOOD, "llama.embedding_length": 64}, TENSORS, "token_embd.weight"),
        (
            {**GOOD, "llama.attention.head_count": 2**31},
            TENSORS,
            "'blk.0.attn_q.weight' has wrong shape",
        ),
        (GOOD, tuple(map(overflowing, TENSORS)), "NaN or infinity"),
        ({**GOOD, "tokenizer.ggml.model": "nobody"}, TENSORS, "unknown tokenizer"),
    ],
)
def test_what_llama_cpp_refuses(
    tmp_path: Path, metadata: dict[str, Any], tensors: tuple[Tensor, ...], message: str
) -> None:
    assert message in refusal(gguf_files.write(tmp_path / "bad.gguf", metadata, tensors))


def test_refused_before_any_child(tmp_path: Path, children: list[Path]) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf_bytes(GOOD, TENSORS)[:-99])
    assert "bytes are missing" in refusal(cut)
    alone = gguf_files.write(tmp_path / "alone.gguf", VOCABULARY)
    assert "vocabulary only" in refusal(alone)
    assert not children


def test_a_split_file(tmp_path: Path, children: list[Path]) -> None:
    names = [tmp_path / f"m-0000{no}-of-00002.gguf" for no in (1, 2)]
    numbers = [
        {"split.no": np.uint16(no), "split.count": np.uint16(2),
         "split.tensors.count": np.int32(len(TENSORS))} for no in (0, 1)
    ]  # fmt: skip
    gguf_files.write(names[0], {**GOOD, **numbers[0]}, TENSORS[:4])
    assert "part 2 of 2 is missing" in refusal(names[0])
    gguf_files.write(names[1], numbers[1], TENSORS[4:])
    first_open(names[0])
    first_open(names[0])
    assert children == names[:1]
    # The second part counts as well.
    data = names[1].read_bytes()
    names[1].write_bytes(data[:-4] + bytes(4))
    first_open(names[0])
    assert len(children) == 2


def test_a_split_file_of_links(tmp_path: Path) -> None:
    """As in the Hub's cache, where files have other names than the links to them."""
    for no, tensors in enumerate((TENSORS[:4], TENSORS[4:])):
        numbers = {"split.no": np.uint16(no), "split.count": np.uint16(2),
                   "split.tensors.count": np.int32(len(TENSORS))}  # fmt: skip
        blob = gguf_files.write(tmp_path / f"blob{no}", {**GOOD, **numbers}, tensors)
        (tmp_path / f"m-0000{no + 1}-of-00002.gguf").symlink_to(blob)
    first_open(tmp_path / "m-00001-of-00002.gguf")
    assert "expected a name ending in" in refusal(tmp_path / "blob0")


def as_child(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """Let a child do this instead of opening a file."""
    lines = (
        "import os, sys, time",
        "from pathlib import Path",
        "from edgedec._support import _sandbox_child",
        "def main(task):",
        f"    {source}",
        "_sandbox_child.serve(main)",
    )
    (folder / "other_child.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(check, "CHILD", "other_child")


def test_a_child_that_does_not_end(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_child(monkeypatch, tmp_path, "time.sleep(60)")
    assert "took longer than 1 s" in refusal(good, timeout_s=1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise SystemExit(3)", "it gave no reason"),
        ("sys.stderr.write('x' * 10**6); sys.exit()", "xxx"),
        ("sys.stderr.write('a\\nerror: b\\nc\\n'); os._exit(3)", "it: error: b"),
        ("os.kill(os.getpid(), 11)", "crashed with SIGSEGV"),
        ("sys.stderr.buffer.write(b'\\xff\\x1b[31m'); sys.exit(3)", "?[31m"),
    ],
)
def test_what_a_child_says(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    as_child(monkeypatch, tmp_path, source)
    assert message in refusal(good)


def test_a_child_without_llama_cpp(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_child(monkeypatch, tmp_path, "raise _sandbox_child.Refusal('unavailable', 'no library')")
    with pytest.raises(RuntimeUnavailable, match="no library"):
        first_open(good)


def test_llama_cpp_is_not_installed(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "PACKAGE", "no-such-package")
    with pytest.raises(RuntimeUnavailable, match=r"install .*\[gguf\]"):
        first_open(good)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits as Linux keeps them")
def test_the_child_is_bounded(good: Path, tmp_path: Path) -> None:
    """No core dump, and no more address space than the file asks for."""
    source = (
        "import resource; from edgedec.runtimes.llamacpp import _check_child as _child; "
        "_child.bound_memory(Path(task['path'])); "
        "sys.stderr.write(f'{resource.getrlimit(resource.RLIMIT_CORE)[0]} "
        "{resource.getrlimit(resource.RLIMIT_AS)[0]}'); sys.exit(3)"
    )
    bounds = said(good, tmp_path, source)
    assert bounds == f"0 {(4 << 30) + 2 * good.stat().st_size}"


def said(good: Path, folder: Path, source: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        as_child(patch, folder, source)
        return refusal(good).rpartition("it: ")[2]


def test_nothing_beside_the_file_is_imported(
    good: Path, children: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of downloads may hold a json.py."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    (tmp_path / "llama_cpp.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    first_open(Path(good.name))
    assert [path.name for path in children] == [good.name]
