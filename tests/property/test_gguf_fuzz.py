"""Whatever a GGUF header says: it is read, or one clear line refuses it; this process lives.

First our own reader and tokenizer, in this process. What they let pass goes to llama.cpp in a
child process, which may crash, and does on some of these files.
"""

import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import damage
import gguf_files
import numpy as np
import pytest
from damage import one_clear_line
from example_counts import examples
from gguf_files import Raw, Tensor, f32, gguf_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_llama import GOOD, HIDDEN, TENSORS

from edgedec.errors import BundleError
from edgedec.gguf import GgufHeader, describe, load_tokenizer
from edgedec.gguf.describe import as_json
from edgedec.gguf.parts import decodable_parts
from edgedec.runtimes.llamacpp.check import first_open

fuzz = settings(
    max_examples=examples(250),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SIZES = st.sampled_from(damage.SIZES)
HEADER = gguf_bytes(gguf_files.pieces(), (f32("a", 8), f32("b", 4, 4)))
BYTE_PAIRS = gguf_bytes(gguf_files.byte_pairs("llama-bpe"), (f32("a", 8),))
MODEL = gguf_bytes(GOOD, TENSORS)
# Where the words of the model's metadata end and the tokens begin: most of its bytes are tokens.
TOKENS = MODEL.index(b"tokenizer.ggml.tokens")


def uses(file: Path) -> bool:
    """Do with a file all that is done in this process; whether llama.cpp would see it."""
    try:
        header = GgufHeader.read(file)
    except BundleError as error:
        one_clear_line(error)
        return False
    for _, shown in describe(header):
        assert shown.isprintable()
    as_json(header)
    try:
        tokenizer = load_tokenizer(header)
        ids = tokenizer.encode("def add(é): 😀<|im_end|>")
        stream = tokenizer.stream()
        assert "".join(map(stream.push, ids)) + stream.flush() == tokenizer.decode(ids)
    except BundleError as error:
        one_clear_line(error)
    try:
        decodable_parts(header)
    except BundleError as error:
        one_clear_line(error)
        return False
    return True


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, until: int) -> bytes:
    """A sound file with some of its first bytes overwritten, taken out or put in, or cut."""
    return damage.data(draw(st.randoms(use_true_random=False)), whole, until)


def test_the_sound_files_are_used(tmp_path: Path) -> None:
    for data in (HEADER, BYTE_PAIRS, MODEL):
        (tmp_path / "a.gguf").write_bytes(data)
        assert uses(tmp_path / "a.gguf")


@pytest.mark.parametrize("whole", [HEADER, BYTE_PAIRS], ids=["pieces", "byte-level"])
@given(data=st.data())
@fuzz
def test_damaged_headers(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    until = data.draw(st.sampled_from([32, 400, len(whole)]))
    (tmp_path / "a.gguf").write_bytes(data.draw(damaged(whole, until)))
    uses(tmp_path / "a.gguf")


@given(rest=st.binary(max_size=200), counts=st.tuples(SIZES, SIZES))
@fuzz
def test_headers_of_any_bytes(tmp_path: Path, rest: bytes, counts: tuple[int, int]) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *counts) + rest)
    uses(tmp_path / "a.gguf")


values = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    SIZES.map(np.uint64),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.floats(width=32),
    st.text(max_size=9),
    st.sampled_from(["gpt2", "llama", "gemma4", "qwen2", "llama-bpe", "clip", "gemma3"]),
    st.lists(st.text(max_size=4) | st.binary(max_size=3), max_size=9),
    st.lists(st.sampled_from(["a", "b", "a b", "ab", "<0x41>"]), max_size=9),
    st.lists(st.integers(-9, 9), max_size=9).map(lambda found: np.array(found, np.int32)),
    st.lists(st.floats(width=32), max_size=9).map(lambda found: np.array(found, np.float32)),
    st.builds(Raw, st.integers(0, 14), st.binary(max_size=24)),
)


@st.composite
def replaced(draw: st.DrawFn, metadata: dict[str, Any]) -> dict[str, Any]:
    """A sound header with some entries taken out or replaced: sound as a file, not in content."""
    changed = dict(metadata)
    for key in draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
        if draw(st.booleans()):
            changed[key] = draw(values)
        else:
            changed.pop(key, None)
    extra = ["general.alignment", "split.count", "split.no", "general.type",
             "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token",
             "tokenizer.chat_template", "llama.rope.dimension_count"]  # fmt: skip
    for key in draw(st.lists(st.sampled_from(extra), max_size=2)):
        changed[key] = draw(values)
    return changed


@pytest.mark.parametrize(
    "metadata", [gguf_files.pieces(), gguf_files.byte_pairs("gpt-2")], ids=["pieces", "byte-level"]
)
@given(data=st.data())
@fuzz
def test_any_entry_replaced(tmp_path: Path, metadata: dict[str, Any], data: st.DataObject) -> None:
    changed = data.draw(replaced(metadata))
    (tmp_path / "a.gguf").write_bytes(gguf_bytes(changed, (f32("a", 8),)))
    uses(tmp_path / "a.gguf")


@given(at=st.integers(0, 600), size=SIZES)
@fuzz
def test_no_memory_is_taken_for_a_claim(tmp_path: Path, at: int, size: int) -> None:
    data = bytearray(HEADER)
    data[at : at + 8] = struct.pack("<Q", size)
    (tmp_path / "a.gguf").write_bytes(data)
    tracemalloc.start()
    try:
        GgufHeader.read(tmp_path / "a.gguf")
    except BundleError as error:
        one_clear_line(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16 << 20  # the reader's chunk, and what so small a file can hold


def outcome(file: Path) -> str:
    """What becomes of a file: refused ``here`` or ``there``, ``crashed`` there, or ``ok``."""
    if not uses(file):
        return "here"
    try:
        first_open(file)
    except BundleError as error:
        one_clear_line(error)
        return "crashed" if "crashed with SIG" in str(error) else "there"
    return "ok"


def other_tensors(draw: st.DrawFn) -> tuple[Tensor, ...]:
    """The model's tensors with one changed, each still sound for itself."""
    tensors = list(TENSORS)
    at = draw(st.integers(0, len(tensors) - 1))
    tensor = tensors[at]
    change = draw(st.sampled_from(["name", "shape", "type", "data"]))
    if change == "name":
        tensors[at] = tensor._replace(name=draw(st.sampled_from(["", "x", "blk.9.attn_q.weight"])))
    elif change == "shape":
        rows, *_ = (*tensor.shape[1:], 1)
        tensors[at] = tensor._replace(shape=(rows, tensor.shape[0]))
    elif change == "type":  # of other sizes, then the tensors behind it move
        kind = draw(st.sampled_from([1, 8, 24, 26, 30, 28]))
        of_row = {1: 64, 8: 34, 24: 32, 26: 128, 30: 64, 28: 256}[kind]
        rows = int(np.prod(tensor.shape)) // HIDDEN
        tensors[at] = tensor._replace(kind=kind, data=b"\x7f" * (of_row * rows))
    else:
        junk = draw(st.binary(min_size=4, max_size=4))
        tensors[at] = tensor._replace(data=junk * (len(tensor.data) // 4))
    return tuple(tensors)


NUMBERS = st.sampled_from([0, 1, 2, 3, 31, 64, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1])


def other_metadata(draw: st.DrawFn) -> dict[str, Any]:
    """The model's metadata with one entry changed and of the same type."""
    extra = {"llama.rope.dimension_count": 16, "llama.attention.head_count_kv": 1,
             "llama.vocab_size": 9, "llama.expert_count": 1, "llama.attention.key_length": 16,
             "llama.attention.sliding_window": 4, "tokenizer.ggml.unknown_token_id": 1,
             "general.quantization_version": 1, "llama.rope.scaling.factor": 1.0}  # fmt: skip
    key = draw(st.sampled_from(sorted({**GOOD, **extra})))
    found = {**GOOD, **extra}[key]
    if isinstance(found, str):
        found = draw(st.sampled_from(["llama", "qwen2", "gpt2", "mamba", "bert", "t5", "", "x"]))
    elif isinstance(found, list):
        kept = draw(st.integers(0, len(found)))
        found = found[:kept] + [draw(st.text(max_size=3))] * (len(found) - kept)
    elif isinstance(found, np.ndarray):
        found = np.full(len(found), draw(st.integers(-1, 7)), found.dtype)
    elif isinstance(found, float):
        found = draw(st.floats(width=32))
    else:
        found = draw(NUMBERS)
    return {**GOOD, key: found}


@st.composite
def models(draw: st.DrawFn) -> bytes:
    """A model that llama.cpp opens, damaged in one of these ways."""
    kind = draw(st.sampled_from(["tensors", "metadata", "metadata", "bytes"]))
    if kind == "tensors":
        return gguf_bytes(GOOD, other_tensors(draw))
    if kind == "metadata":
        return gguf_bytes(other_metadata(draw), TENSORS)
    return draw(damaged(MODEL, TOKENS))


@given(data=models())
@settings(fuzz, max_examples=examples(10))
def test_llama_cpp_cannot_end_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "a.gguf").write_bytes(data)
    outcome(tmp_path / "a.gguf")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_llama_cpp_cannot_end_this_process_with_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found: Counter[str] = Counter()

    @given(data=models())
    @settings(fuzz, max_examples=examples(150))
    def survives(data: bytes) -> None:
        (tmp_path / "a.gguf").write_bytes(data)
        found[outcome(tmp_path / "a.gguf")] += 1

    survives()
    # A fuzz that never gets past our own reader, or past llama.cpp's, would show nothing.
    assert min(found["ok"], found["there"], found["here"]) >= 1, found
