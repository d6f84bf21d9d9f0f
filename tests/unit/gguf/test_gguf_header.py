"""A GGUF header: everything in it is checked, and what is wrong is said in one line."""

import struct
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
from gguf_files import Raw, Tensor, f32, gguf_bytes

from edgedec.errors import BundleError
from edgedec.gguf import describe
from edgedec.gguf.describe import as_json
from edgedec.gguf.header import CHUNK, ByteSource, GgufHeader, TensorInfo
from edgedec.gguf.parts import decodable_parts
from edgedec.gguf.types import FILE_TYPES, TENSOR_TYPES

GOOD: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "general.file_type": 15,
    "llama.context_length": 2048,
    "llama.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": ["a", "b", "cé"],
    "tokenizer.ggml.scores": np.array([0, -1, -2], np.float32),
    "tokenizer.ggml.add_bos_token": True,
    "big": np.uint64(2**63),
    "small": np.int8(-3),
}
TENSORS = (
    f32("norm", 5),
    Tensor("weight", (256, 3), 12, bytes(3 * 144)),
    Tensor("embedding", (32, 2), 8, bytes(2 * 34)),
)


def read(folder: Path, data: bytes) -> GgufHeader:
    file = folder / "model.gguf"
    file.write_bytes(data)
    return GgufHeader.read(file)


def refusal(folder: Path, data: bytes) -> str:
    with pytest.raises(BundleError) as refused:
        read(folder, data)
    message = str(refused.value)
    assert message.startswith(str(folder / "model.gguf"))
    assert len(message) < 600
    return message


def test_all_of_a_header(tmp_path: Path) -> None:
    data = gguf_bytes(GOOD, TENSORS)
    header = read(tmp_path, data)
    assert (header.version, header.size_bytes, header.path.name) == (3, len(data), "model.gguf")
    assert header.tensors == (
        TensorInfo("norm", (5,), "F32", 20),
        TensorInfo("weight", (256, 3), "Q4_K", 432),
        TensorInfo("embedding", (32, 2), "Q8_0", 68),
    )
    assert (header.parameters, header.weight_bytes) == (5 + 768 + 64, 20 + 432 + 68)
    assert (header.architecture, header.name, header.quantisation) == ("llama", "Tiny", "Q4_K_M")
    assert (header.context_length, header.vocab_size) == (2048, 3)
    assert header.metadata["tokenizer.ggml.tokens"] == ["a", "b", "cé"]
    assert header.metadata["tokenizer.ggml.scores"].tolist() == [0, -1, -2]
    assert header.metadata["tokenizer.ggml.add_bos_token"] is True
    assert header.metadata["llama.rope.freq_base"] == 10000.0
    assert (header.metadata["big"], header.metadata["small"]) == (2**63, -3)
    assert list(header.shares) == ["Q4_K", "Q8_0", "F32"]
    assert sum(header.shares.values()) == pytest.approx(1)


def test_version_2_reads_alike(tmp_path: Path) -> None:
    header = read(tmp_path, gguf_bytes(GOOD, TENSORS, version=2))
    assert header.version == 2
    assert len(header.tensors) == 3


def test_what_is_not_stated(tmp_path: Path) -> None:
    header = read(tmp_path, gguf_bytes({"general.name": 7, "x": ""}))
    assert (header.architecture, header.name, header.context_length) == ("", "model", None)
    assert (header.vocab_size, header.quantisation, header.weight_bytes) == (None, "none", 0)


def test_the_numbers_are_ggmls() -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {code: (kind.name, kind.block, kind.block_bytes) for code, kind in TENSOR_TYPES.items()}
    assert {code: kind for code, kind in theirs.items() if code in ours} == ours
    named = {int(kind): kind.name.removeprefix("MOSTLY_") for kind in gguf.LlamaFileType}
    assert {code: named[code].removeprefix("ALL_") for code in FILE_TYPES} == FILE_TYPES


def test_a_file_of_the_gguf_package(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_custom_alignment(64)
    writer.add_token_list(["a", "b"])
    writer.add_array("llama.some", [1, 2, 3])
    writer.add_tensor("a", np.ones((3, 4), np.float32))
    writer.add_tensor("b", np.ones((2, 2), np.float16))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file,
                 writer.write_tensors_to_file, writer.close):  # fmt: skip
        step()
    header = GgufHeader.read(tmp_path / "model.gguf")
    assert [(t.name, t.shape, t.type) for t in header.tensors] == [
        ("a", (4, 3), "F32"),
        ("b", (2, 2), "F16"),
    ]
    assert header.metadata["llama.some"].tolist() == [1, 2, 3]


CUT = ".gguf: it is cut short or damaged: "


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.95])
def test_cut_short(tmp_path: Path, share: float) -> None:
    data = gguf_bytes(GOOD, TENSORS)
    message = refusal(tmp_path, data[: int(len(data) * share)])
    said = message.partition(".gguf: ")[2]
    assert said.startswith("it is cut short") or "does not begin with GGUF" in said


def test_the_missing_bytes_are_counted(tmp_path: Path) -> None:
    data = gguf_bytes(GOOD, TENSORS)
    needed = len(data) - (-68 % 32)  # the padding behind the last tensor may be missing
    assert read(tmp_path, data[:needed]).weight_bytes == 520
    assert f"17 of {needed} bytes are missing" in refusal(tmp_path, data[: needed - 17])


def head(version: int, tensors: int, entries: int, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


def string_of(length: int) -> bytes:
    return struct.pack("<Q", length)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with GGUF"),
        (b"GGML" + bytes(40), "does not begin with GGUF"),
        (head(1, 0, 0), "version 1, expected 2 or 3: convert it again"),
        (head(4, 0, 0), "version 4, expected 2 or 3: upgrade"),
        (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
        (head(3, 0, 2**63), "claims"),
        (head(3, 2**63, 0), "claims"),
        (head(3, 0, 1000), CUT),
        (head(3, 1000, 0), CUT),
        (head(3, 0, 1, string_of(2**60) + bytes(40)), CUT),
        (head(3, 0, 1, gguf_files.text("k" * 70000) + bytes(40)), "expected at most 65536"),
        (gguf_bytes({"a": Raw(8, string_of(2**64 - 1))}), CUT),
        (gguf_bytes({"a": Raw(8, string_of(17 << 20) + bytes(17 << 20))}), "at most 16777216"),
        (gguf_bytes({"a": Raw(13, bytes(8))}), "unknown type 13"),
        (gguf_bytes({"a": Raw(9, struct.pack("<IQ", 4, 2**62))}), "claims"),
        (gguf_bytes({"a": Raw(9, struct.pack("<IQ", 4, 2**20))}), CUT),
        (gguf_bytes({"a": Raw(9, struct.pack("<IQ", 8, 2**62))}), "claims"),
        (gguf_bytes({"a": Raw(9, struct.pack("<IQ", 8, 2**20))}), CUT),
        (
            gguf_bytes({"a": Raw(9, struct.pack("<IQQ", 8, 2, 2**40) + bytes(99))}),
            CUT,
        ),
        (gguf_bytes({"a": Raw(9, struct.pack("<IQ", 9, 1) + bytes(99))}), "array of arrays"),
        (gguf_bytes({"a": Raw(9, struct.pack("<IQ", 99, 1) + bytes(99))}), "unknown type 99"),
        (head(3, 0, 2, 2 * (gguf_files.text("a") + gguf_files.value(1))), "'a' is empty or a"),
        (gguf_bytes({"": 1}), "'' is empty"),
        (gguf_bytes({"general.alignment": 24}, TENSORS), "expected a power of two"),
        (gguf_bytes({"general.alignment": "32"}, TENSORS), "expected a power of two"),
        (gguf_bytes({"general.alignment": 0}, TENSORS), "expected a power of two"),
        (gguf_bytes({"general.alignment": 1 << 30}, TENSORS), "expected a power of two"),
        (gguf_bytes({}, (f32("a", 4), f32("a", 4))), "two tensors are named 'a'"),
        (gguf_bytes({}, (f32("a" * 64, 4),)), "expected at most 63"),
        (gguf_bytes({}, (f32("a\nb", 4)._replace(kind=99),)), "'a?b' has the unknown type 99"),
        (gguf_bytes({}, (f32("a", 1, 1, 1, 1, 1),)), "5 dimensions"),
        (gguf_bytes({}, (Tensor("a", (), 0, bytes(64)),)), "0 dimensions"),
        (gguf_bytes({}, (Tensor("a", (4, 0), 0, bytes(64)),)), "impossible shape [4, 0]"),
        (gguf_bytes({}, (Tensor("a", (2**40, 2**40), 0, bytes(64)),)), "impossible shape"),
        (gguf_bytes({}, (Tensor("a", (33, 2), 8, bytes(99)),)), "impossible shape [33, 2]"),
        (gguf_bytes({}, (Tensor("a", (2**50,), 0, bytes(64)),)), "bytes are missing"),
        (gguf_bytes({}, (f32("a", 4), f32("b", 4)._replace(offset=0))), "expected 32"),
        (gguf_bytes({}, (f32("a", 4)._replace(offset=2**63),)), "expected 0"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, data: bytes, message: str) -> None:
    assert message in refusal(tmp_path, data)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.gguf", tmp_path / "a\0b"):
        with pytest.raises(BundleError, match=r"no file|cannot be read"):
            GgufHeader.read(path)


def test_a_large_vocabulary_is_read_in_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step but the decoding of a token is taken for each of 250,000 tokens."""
    tokens = [f"token{i}" for i in range(250_000)]
    metadata = {**GOOD, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": tokens}
    data = gguf_bytes(metadata, TENSORS)
    checks, honest = list[int](), ByteSource._need

    def need(self: ByteSource, count: int, what: str) -> None:
        checks.append(count)
        honest(self, count, what)

    monkeypatch.setattr(ByteSource, "_need", need)
    header = read(tmp_path, data)
    chunks = len(data) // CHUNK
    # Each chunk's first token is looked for; the other entries and tensors take a few steps each.
    assert len(checks) < 20 * (len(GOOD) + len(TENSORS)) + 4 * chunks
    assert chunks >= 4
    assert header.metadata["tokenizer.ggml.tokens"] == tokens
    assert header.tensors[-1].name == "embedding"


NASTY = {
    **GOOD,
    "general.name": "a\x1b[31m\nb" * 999,
    "general.license": "x\r\ny",
    "k\ney": "v\x00",
    "nan": float("nan"),
    "tokenizer.ggml.model": "gp\tt2",
}


def test_described_in_bounded_lines(tmp_path: Path) -> None:
    nasty = {key: v for key, v in NASTY.items() if key != "general.architecture"}
    nasty["general.architecture"] = Raw(8, gguf_files.text(b"ll\xffama"))
    header = read(tmp_path, gguf_bytes(nasty, TENSORS))
    rows = describe(header)
    for name, value in rows:
        assert value.isprintable()
        assert len(value) <= 200
        assert name
    shown = dict(rows)
    assert shown["architecture"] == "ll?ama"
    assert shown["parameters"] == "837"
    assert shown["weights"].startswith("Q4_K_M (Q4_K 83%")
    assert shown["vocabulary"] == "3 tokens, gp?t2"


def test_as_json(tmp_path: Path) -> None:
    import json

    many = {"tokenizer.ggml.tokens": ["a"] * 99, "nan": float("nan"), "k\ney": "v\x00" * 999}
    facts = as_json(read(tmp_path, gguf_bytes({**GOOD, **many}, TENSORS)))
    again = json.loads(json.dumps(facts, allow_nan=False))
    assert again["metadata"]["tokenizer.ggml.tokens"] == {"elements": 99, "first": ["a"] * 8}
    assert again["metadata"]["tokenizer.ggml.scores"] == [0, -1, -2]
    assert again["metadata"]["nan"] == "nan"
    assert again["metadata"]["k?ey"].startswith("v?v?")
    assert again["parameters"] == 837


def write(file: Path, **entries: Any) -> GgufHeader:
    renamed = {key.replace("_", "."): found for key, found in entries.items()}
    return GgufHeader.read(gguf_files.write(file, {**GOOD, **renamed}, TENSORS))


def part(folder: Path, no: int, count: int = 3, **entries: Any) -> GgufHeader:
    folder.mkdir(exist_ok=True)
    numbers = {"split.no": np.uint16(no), "split.count": np.uint16(count), **entries}
    return write(folder / f"model-{no + 1:05}-of-{count:05}.gguf", **numbers)


def test_parts_of_a_split_file(tmp_path: Path) -> None:
    first, *others = [part(tmp_path, no) for no in range(3)]
    assert dict(describe(others[1]))["part"] == "3 of 3, this one alone:"
    assert decodable_parts(first) == [first.path, *(other.path for other in others)]
    with pytest.raises(BundleError, match="part 2 of 3: give the first, model-00001-of-00003"):
        decodable_parts(others[0])


def test_parts_by_any_name(tmp_path: Path) -> None:
    first, other = (part(tmp_path / "a\nb", no, 2) for no in range(2))
    assert decodable_parts(first) == [first.path, other.path]


def test_a_scaling_without_a_kind_is_linear(tmp_path: Path) -> None:
    """So llama.cpp takes it."""
    scaled = {"llama_rope_scaling_factor": 4.0, "llama_rope_scaling_type": "none"}
    assert write(tmp_path / "none.gguf", **scaled).context_length == 2048
    del scaled["llama_rope_scaling_type"]
    assert write(tmp_path / "linear.gguf", **scaled).context_length == 8192


def test_a_part_is_missing(tmp_path: Path) -> None:
    first = part(tmp_path, 0)
    part(tmp_path, 2)
    with pytest.raises(BundleError, match=r"part 2 of 3 is missing: put model-00002-of-00003\.gg"):
        decodable_parts(first)


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    first = part(tmp_path, 0, 2)
    second = part(tmp_path, 1, 2)
    second.path.write_bytes(second.path.read_bytes()[:-100])
    with pytest.raises(BundleError, match=r"00002-of-00002.*bytes are missing"):
        decodable_parts(first)
    second.path.write_bytes(first.path.read_bytes())
    with pytest.raises(BundleError, match="expected part 2 of 2"):
        decodable_parts(first)
    renamed = first.path.rename(tmp_path / "renamed.gguf")
    with pytest.raises(BundleError, match=r"one of 2 parts, expected a name ending in -00001-of"):
        decodable_parts(GgufHeader.read(renamed))


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        (GOOD, (), "a vocabulary only, no weights"),
        ({**GOOD, "general.type": "adapter"}, TENSORS, "'adapter' instead of a model"),
        ({"general.name": "x"}, TENSORS, "names no architecture"),
        ({**GOOD, "llama.context_length": 2**32 - 1}, TENSORS, "context length is 4294967295"),
        ({**GOOD, "llama.context_length": "8"}, TENSORS, "context length is 8"),
        ({**GOOD, "llama.attention.causal": False}, TENSORS, "its tokens read later ones as well"),
    ],
)
def test_nothing_to_decode_with(
    tmp_path: Path, metadata: dict[str, Any], tensors: tuple[Tensor, ...], message: str
) -> None:
    header = read(tmp_path, gguf_bytes(metadata, tensors))
    with pytest.raises(BundleError, match=message):
        decodable_parts(header)
