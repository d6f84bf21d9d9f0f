"""Packages: what is written is read again; damaged ones are refused in one clear line."""

import json
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tiny_program

from edgedec.bundle.protobuf import Damaged, message
from edgedec.coreml import Package
from edgedec.coreml.blob import BlobFile, BlobWriter
from edgedec.coreml.package import MANIFEST, MODEL, WEIGHTS, check_listed, package_files
from edgedec.coreml.program import Function
from edgedec.coreml.schema import MESSAGES
from edgedec.coreml.types import Kind, Stored, TensorType
from edgedec.errors import BundleError


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return tiny_program.write(tmp_path / "tiny.mlpackage")


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as found:
        check_listed(folder / MODEL, package_files(folder))
    message = str(found.value)
    assert len(message) < 600
    for word in words:
        assert word in message, message


def test_what_is_written_is_read(package: Path) -> None:
    read = Package.open(package)
    assert read.names == ["one", "two"]
    assert read.facts == tiny_program.FACTS
    check_listed(package / MODEL, package_files(package))
    again = read.function("two")
    places = {
        each.offset: each
        for op in again.operations
        for operands in (op.inputs.values() if op.value is None else [(op.value,)])
        for each in operands
        if isinstance(each, Stored)
    }
    arrays = tiny_program.arrays()
    for place, values in zip(sorted(places), arrays.values(), strict=True):
        np.testing.assert_array_equal(read.blob.tensor(places[place]), values)
    assert again.encoded() == Function.decoded("two", memoryview(again.encoded())).encoded()
    assert bytes(read._functions["two"]) == again.encoded()


def test_the_same_program_gives_the_same_bytes(tmp_path: Path, package: Path) -> None:
    other = tiny_program.write(tmp_path / "other.mlpackage")
    for one, two in zip(package_files(package), package_files(other), strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_the_manifest_is_as_coremltools_writes_it_again(package: Path) -> None:
    """Its loader writes the manifest of each package that it opens, with sorted keys."""
    text = (package / MANIFEST).read_text("utf-8")
    assert text == json.dumps(json.loads(text), indent=4, sort_keys=True) + "\n"


def test_every_type_of_number_is_stored(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dtypes = {Kind.INT8: np.int8, Kind.UINT8: np.uint8, Kind.INT16: np.int16,
              Kind.UINT16: np.uint16, Kind.INT32: np.int32, Kind.FLOAT32: np.float32,
              Kind.FLOAT16: np.float16}  # fmt: skip
    written = {}
    with BlobWriter(tmp_path / "weight.bin") as blob:
        for kind, dtype in dtypes.items():
            values = rng.integers(0, 99, (3, 5)).astype(dtype)
            written[blob.add(TensorType(kind, (3, 5)), [values[:1], values[1:]])] = values
        for kind, low in ((Kind.INT4, -8), (Kind.UINT4, 0)):
            values = rng.integers(low, low + 16, (3, 5))
            odd = np.concatenate([values.reshape(-1), [0]])
            written[blob.add(TensorType(kind, (3, 5)), [tiny_program.packed(odd)])] = values
        blob.finish()
    read = BlobFile(tmp_path / "weight.bin")
    for place, values in written.items():
        np.testing.assert_array_equal(read.tensor(place), values)


def test_parts_of_another_type_or_size_are_no_tensor(tmp_path: Path) -> None:
    with BlobWriter(tmp_path / "weight.bin") as blob:
        with pytest.raises(ValueError, match="bytes were given"):
            blob.add(TensorType(Kind.INT8, (4,)), [np.zeros(3, np.int8)])
        with pytest.raises(ValueError, match="float64 was given"):
            blob.add(TensorType(Kind.FLOAT16, (4,)), [np.zeros(4)])


def test_negative_numbers_and_long_lists_survive() -> None:
    values = {"values": [-1, 0, 1, 127, 128, -(2**31), 2**31 - 1]}
    assert MESSAGES.decode("Ints", memoryview(MESSAGES.encode("Ints", values))) == values
    assert MESSAGES.decode("Constant", memoryview(MESSAGES.encode("Constant", {"size": 300}))) == {
        "size": 300
    }


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("Constant", b"\x0d\x01\x00\x00\x00"),  # fixed 32 where a varint belongs
        ("Constant", b"\x0a\x01\x00"),  # bytes where a varint belongs
        ("Ints", b"\x0a\x01\x80"),  # a varint that does not end
        ("Ints", b"\x0a\x0b" + b"\xff" * 10 + b"\x01"),  # more than 64 bits
        ("Floats", b"\x0a\x03\x00\x00\x00"),  # not a multiple of four
        ("NamedType", b"\x0a\x01\xff"),  # not UTF-8
        ("NamedType", b"\x08\x01"),  # a number where a text belongs
        ("Model", b"\x0a\x7f"),  # cut short
    ],
)
def test_what_is_not_a_message_is_damaged(kind: str, data: bytes) -> None:
    with pytest.raises(Damaged):
        MESSAGES.decode(kind, memoryview(data))


def test_too_many_fields_are_damaged() -> None:
    data = memoryview(MESSAGES.encode("Ints", {"values": [1] * 50}))
    assert len(MESSAGES.decode("Ints", data, 51)["values"]) == 50
    with pytest.raises(Damaged):
        MESSAGES.decode("Ints", data, 50)


def test_fields_of_a_map_are_counted() -> None:
    entry = b"\x12\x00" * 50
    data = memoryview(b"\x12" + bytes([len(entry)]) + entry)
    assert MESSAGES.decode("Program", data, 51) == {"functions": {"": b""}}
    with pytest.raises(Damaged):
        MESSAGES.decode("Program", data, 50)


def test_a_list_beyond_the_bound_is_not_built() -> None:
    data = memoryview(MESSAGES.encode("Ints", {"values": [300] * 200_000}))
    tracemalloc.start()
    try:
        with pytest.raises(Damaged):
            MESSAGES.decode("Ints", data, 100)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def nested(levels: int) -> bytes:
    """A type within types of states."""
    found = b""
    for _ in range(levels):
        found = message((5, message((1, found))))
    return found


@pytest.mark.parametrize("levels", [16, 300])
def test_messages_that_are_nested_too_deep(package: Path, levels: int) -> None:
    with pytest.raises(Damaged):
        MESSAGES.decode("ValueType", memoryview(nested(levels)))
    assert MESSAGES.decode("ValueType", memoryview(nested(15)))
    model = MESSAGES.decode("Model", memoryview((package / MODEL).read_bytes()))
    # A message's fields may follow those of another: this adds an input.
    named = message((2, nested(levels)))
    added = bytes(model["mlProgram"]["functions"]["two"]) + message((1, named))
    model["mlProgram"]["functions"]["two"] = added
    (package / MODEL).write_bytes(MESSAGES.encode("Model", model))
    refused(package, "its function 'two' is not a decoder's")


# -- damaged packages ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [MODEL, WEIGHTS, MANIFEST])
def test_a_missing_file(package: Path, name: str) -> None:
    (package / name).unlink()
    refused(package, name.rsplit("/", 1)[-1], "No such file", "export it again")


@pytest.mark.parametrize("name", [MODEL, WEIGHTS, MANIFEST])
@pytest.mark.parametrize("keep", [0, 5, 70, 0.5, 0.99])
def test_a_file_that_is_cut_short(package: Path, name: str, keep: float) -> None:
    data = (package / name).read_bytes()
    length = int(keep if keep >= 1 or not keep else keep * len(data))
    (package / name).write_bytes(data[:length])
    refused(package, "export it again")


def test_a_file_that_the_bundle_does_not_list(package: Path) -> None:
    model, manifest, _ = package_files(package)
    with pytest.raises(BundleError, match="does not list"):
        check_listed(model, [model, manifest])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"fileFormatVersion": "2.0.0"}, "fileFormatVersion"),
        ({"rootModelIdentifier": "x"}, "rootModelIdentifier"),
        ({"itemInfoEntries": {}}, "itemInfoEntries"),
        ({"itemInfoEntries": 7}, "itemInfoEntries"),
    ],
)
def test_another_manifest(package: Path, change: dict, word: str) -> None:
    file = package / MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change), "utf-8")
    refused(package, word)


def test_a_manifest_that_leads_elsewhere(package: Path) -> None:
    file = package / MANIFEST
    manifest = json.loads(file.read_text("utf-8"))
    for item in manifest["itemInfoEntries"].values():
        item["path"] = "../" + item["path"]
    file.write_text(json.dumps(manifest), "utf-8")
    refused(package, "itemInfoEntries")


def test_another_version(package: Path) -> None:
    model = MESSAGES.decode("Model", memoryview((package / MODEL).read_bytes()))
    model["specificationVersion"] = 10
    (package / MODEL).write_bytes(MESSAGES.encode("Model", model))
    refused(package, "specification version 10", "reads 9")


def test_a_package_of_another_program(package: Path) -> None:
    model = MESSAGES.decode("Model", memoryview((package / MODEL).read_bytes()))
    del model["description"]["metadata"]
    (package / MODEL).write_bytes(MESSAGES.encode("Model", model))
    with pytest.raises(BundleError, match="not exported by edgedec"):
        _ = Package.open(package).facts


def test_another_version_of_the_weights(package: Path) -> None:
    data = bytearray((package / WEIGHTS).read_bytes())
    data[4] = 3
    (package / WEIGHTS).write_bytes(data)
    refused(package, "version 3 of the storage", "expected 2")


def with_offset(package: Path, offset: int) -> None:
    """Let the table's constant stand elsewhere in the blob file."""
    read = Package.open(package)
    function = read.function("two")
    for index, operation in enumerate(function.operations):
        if isinstance(operation.value, Stored):
            type = operation.value.type
            changed = type_of(operation, Stored(type, offset))
            function.operations[index] = changed  # type: ignore[index]
    model = MESSAGES.decode("Model", memoryview((package / MODEL).read_bytes()))
    model["mlProgram"]["functions"]["two"] = function.encoded()
    (package / MODEL).write_bytes(MESSAGES.encode("Model", model))


def type_of(operation, value):
    from dataclasses import replace

    return replace(operation, value=value)


@pytest.mark.parametrize("offset", [0, 63, 65, 192, 1 << 20, (1 << 62), -64])
def test_weights_whose_offset_is_not_one(package: Path, offset: int) -> None:
    with_offset(package, offset)
    refused(package, "damaged")


def test_weights_that_leave_the_file(package: Path) -> None:
    data = bytearray((package / WEIGHTS).read_bytes())
    data[64 + 8 : 64 + 16] = (1 << 40).to_bytes(8, "little")
    (package / WEIGHTS).write_bytes(data)
    refused(package, "beyond its end")


def test_links_to_packages_are_followed_but_not_unlisted(package: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(str(package / WEIGHTS), elsewhere)
    (package / WEIGHTS).symlink_to(elsewhere)
    model, manifest, weights = package_files(package)
    with pytest.raises(BundleError, match="does not list"):
        check_listed(model, [model, manifest, package / "other"])
    check_listed(model, [model, manifest, weights])  # a bundle itself follows no link
