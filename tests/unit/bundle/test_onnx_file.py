"""What the adapter reads of an ONNX file, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_tiny_model

from edgedec.bundle import onnx_file as file_module
from edgedec.bundle.onnx_file import read_model_file
from edgedec.bundle.protobuf import message
from edgedec.errors import BundleError, RuntimeUnavailable
from edgedec.runtimes.onnx.model import OnnxModel


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_tiny_model(folder, "int4")
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        OnnxModel.load(folder)
    message = str(caught.value)
    for word in words:
        assert word in message


def edit(folder: Path, change: Any) -> None:
    """Load model.onnx without its data, change it, and write it back."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def edit_metadata(folder: Path, **changes: Any) -> None:
    def change(model: onnx.ModelProto) -> None:
        (entry,) = model.metadata_props
        found = json.loads(entry.value) | changes
        entry.value = json.dumps({k: v for k, v in found.items() if v is not None})

    edit(folder, change)


def test_weights_are_counted_as_stored(written: Path) -> None:
    model = onnx.load(written / "model.onnx", load_external_data=False)
    ranges, inline = set(), 0
    for tensor in model.graph.initializer:
        if tensor.external_data:
            place = {entry.key: entry.value for entry in tensor.external_data}
            ranges.add((place["offset"], int(place["length"])))
        else:
            inline += onnx.numpy_helper.to_array(tensor).nbytes
    expected = inline + sum(length for _, length in ranges)
    assert read_model_file(written / "model.onnx").weight_bytes == expected
    assert 0 < expected <= sum(file.stat().st_size for file in written.iterdir())


def test_metadata_is_read(written: Path) -> None:
    metadata = read_model_file(written / "model.onnx").metadata
    assert json.loads(metadata["edgedec"])["name"] == "tiny"


def test_a_file_or_its_folder(folder: Path) -> None:
    assert OnnxModel.load(folder).info == OnnxModel.load(folder / "model.onnx").info


def test_missing(tmp_path: Path) -> None:
    refused(tmp_path, "model.onnx", "cannot be read")
    refused(tmp_path / "nowhere.onnx", "nowhere.onnx")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_cut_short(folder: Path, share: float) -> None:
    file = folder / "model.onnx"
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(folder, "model.onnx")


def test_garbage(folder: Path) -> None:
    rng = np.random.default_rng(0)
    (folder / "model.onnx").write_bytes(rng.bytes(5000))
    refused(folder, "damaged")


def test_weights_cut_short_or_gone(folder: Path) -> None:
    data = folder / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-5000])
    refused(folder, "cut short")
    data.unlink()
    refused(folder, "missing")


@pytest.mark.parametrize("kind", ["relative", "absolute", "symlink", "memory"])
def test_weights_outside_the_folder(folder: Path, kind: str) -> None:
    outside = folder.parent / "outside.data"
    shutil.copy(folder / "model.onnx.data", outside)
    if kind == "symlink":
        (folder / "model.onnx.data").unlink()
        (folder / "model.onnx.data").symlink_to(outside)
    location = {
        "relative": "../outside.data",
        "absolute": str(outside),
        "symlink": "model.onnx.data",
        "memory": "*/_ORT_MEM_ADDR_/*",
    }[kind]

    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location

    edit(folder, change)
    refused(folder)


def test_weights_outside_the_folder_in_a_node(folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        tensor = onnx.TensorProto(name="t", data_type=1, dims=[1], data_location="EXTERNAL")
        for key, value in (("location", "../../secret"), ("offset", "0"), ("length", "4")):
            tensor.external_data.add(key=key, value=value)
        model.graph.node.append(onnx.helper.make_node("Constant", [], ["c"], value=tensor))

    edit(folder, change)
    refused(folder, "out of its folder")


def test_no_metadata(folder: Path) -> None:
    edit(folder, lambda model: model.ClearField("metadata_props"))
    refused(folder, "edgedec export")


@pytest.mark.parametrize(
    "changes",
    [{"layers": None}, {"layers": -1}, {"vocab_size": "many"}, {"eos_ids": 3}, {"top_k": True}],
)
def test_damaged_metadata(folder: Path, changes: dict[str, Any]) -> None:
    edit_metadata(folder, **changes)
    refused(folder, "metadata")


def test_metadata_that_is_no_json(folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.metadata_props[0].value = "[1, 2"

    edit(folder, change)
    refused(folder, "metadata")


def test_a_newer_graph(folder: Path) -> None:
    edit_metadata(folder, graph_version=4)
    refused(folder, "version 4", "upgrade")


def test_more_fields_than_a_graph_has(tmp_path: Path) -> None:
    """Ten million took half a minute on a busy machine."""
    nodes = b"\x0a\x00"
    for count in (1 << 18, 1 << 20):
        (tmp_path / "model.onnx").write_bytes(message((7, nodes * count)))
        if count < 1 << 19:
            read_model_file(tmp_path / "model.onnx")
        else:
            with pytest.raises(BundleError, match="fields, expected some thousands: refused"):
                read_model_file(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "changes", [{"layers": 3}, {"kv_heads": 4}, {"vocab_size": 9}, {"top_k": 1}]
)
def test_metadata_of_another_graph(folder: Path, changes: dict[str, Any]) -> None:
    edit_metadata(folder, **changes)
    refused(folder, "export it again")


def loop_forever(model: onnx.ModelProto) -> None:
    """Add a node that counts to the largest number there is."""
    scalar = onnx.TensorProto.BOOL
    one = onnx.helper.make_tensor("on", scalar, [], [True])
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["go"], ["still"])],
        "body",
        [
            onnx.helper.make_tensor_value_info("step", onnx.TensorProto.INT64, []),
            onnx.helper.make_tensor_value_info("go", scalar, []),
        ],
        [onnx.helper.make_tensor_value_info("still", scalar, [])],
    )
    most = onnx.helper.make_tensor("most", onnx.TensorProto.INT64, [], [2**62])
    model.graph.initializer.extend([one, most])
    model.graph.node.append(onnx.helper.make_node("Loop", ["most", "on"], [], body=body))


def test_a_graph_with_a_loop(folder: Path) -> None:
    edit(folder, loop_forever)
    refused(folder, "model.onnx", "has a loop (Loop)")


@pytest.mark.parametrize("name", ["Scan", "SequenceMap"])
def test_a_loop_in_a_branch_or_a_function(tmp_path: Path, name: str) -> None:
    """The control: a branch alone ends."""
    file = tmp_path / "model.onnx"
    for name_of_it, ends in (("If", True), (name, False)):
        node = message((4, name_of_it))
        branch = message((4, "If"), (5, message((6, message((1, node))))))
        for content in (message((7, message((1, branch)))), message((25, message((7, node))))):
            file.write_bytes(content)
            if ends:
                assert read_model_file(file).weight_bytes == 0
            else:
                with pytest.raises(BundleError, match=name):
                    read_model_file(file)


def test_a_provider_that_is_not_there(folder: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="NoSuchProvider"):
        OnnxModel.load(folder, providers=["NoSuchProvider", "CPUExecutionProvider"])


def tensor_outside() -> onnx.TensorProto:
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "../outside"), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def in_node(model: onnx.ModelProto) -> onnx.AttributeProto:
    return model.graph.node.add().attribute.add()


# Everywhere that onnx.proto3 has room for a tensor.
PLACES: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "initializer": lambda m: m.graph.initializer,
    "sparse values": lambda m: m.graph.sparse_initializer.add().values,
    "sparse indices": lambda m: m.graph.sparse_initializer.add().indices,
    "attribute": lambda m: in_node(m).t,
    "attributes": lambda m: in_node(m).tensors,
    "sparse attribute": lambda m: in_node(m).sparse_tensor.values,
    "sparse attributes": lambda m: in_node(m).sparse_tensors.add().indices,
    "graph of an attribute": lambda m: in_node(m).g.initializer,
    "graphs of an attribute": lambda m: in_node(m).graphs.add().initializer,
    "function": lambda m: m.functions.add().node.add().attribute.add().t,
    "default of a function": lambda m: m.functions.add().attribute_proto.add().t,
    "training": lambda m: m.training_info.add().initialization.initializer,
    "training step": lambda m: m.training_info.add().algorithm.initializer,
}


@pytest.mark.parametrize("place", PLACES)
def test_weights_outside_are_found_wherever_they_hang(tmp_path: Path, place: str) -> None:
    (tmp_path / "outside").write_bytes(bytes(8))
    file = tmp_path / "model" / "model.onnx"
    file.parent.mkdir()
    model = onnx.ModelProto()
    found = PLACES[place](model)
    if isinstance(found, onnx.TensorProto):
        found.CopyFrom(tensor_outside())
    else:
        found.append(tensor_outside())
    file.write_bytes(model.SerializeToString())
    with pytest.raises(BundleError, match="lead out of its folder"):
        read_model_file(file)


def sound(file: Path) -> bool:
    """Whether the file is read, all that it claims then being there and inside its folder."""
    try:
        found = read_model_file(file)
    except BundleError:
        return False
    assert found.inline_bytes <= file.stat().st_size
    for location, offset, length in found.stored:
        place = (file.parent / location).resolve()
        assert place.is_relative_to(file.parent.resolve())
        assert place.is_file()
        assert 0 <= offset <= offset + length <= place.stat().st_size
    return True


def changed(written: Path, at: int, bits: int) -> Path:
    content = bytearray((written / "model.onnx").read_bytes())
    content[at] ^= bits
    file = written / "changed.onnx"
    file.write_bytes(content)
    return file


@given(at=st.floats(0, 0.999), bits=st.integers(1, 255))
def test_any_changed_byte_is_read_or_refused(written: Path, at: float, bits: int) -> None:
    sound(changed(written, int(at * (written / "model.onnx").stat().st_size), bits))


def test_changed_bytes_where_it_matters(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (written / "model.onnx").read_bytes()
    assert sound(written / "model.onnx")
    assert not sound(changed(written, 0, 255))
    assert sound(changed(written, content.index(b'"name"') + 2, 1)), "a name decides nothing"
    # The first file's name, and the first digit of the last tensor's offset.
    name = content.index(b"model.onnx.data")
    assert not sound(changed(written, name, 1))
    offsets = re.finditer(rb"offset\x12.([1-8]\d+)", content, re.DOTALL)
    last = max(offsets, key=lambda found: int(found[1]))
    digit, more = last.start(1), last[1][0] ^ ord("9")
    assert not sound(changed(written, digit, more))
    # A walk that believes what the file says is noticed.
    monkeypatch.setattr(file_module, "_check_external", lambda *claimed: None)
    for at, bits in ((name, 1), (digit, more)):
        with pytest.raises(AssertionError):
            sound(changed(written, at, bits))


def hidden(tag: bytes, field: bytes) -> bytes:
    """A field of a message with its one-byte tag written otherwise."""
    assert field[0] < 128
    return tag + field[1:]


@pytest.mark.parametrize(
    ("tag", "read"),
    [
        (b"\xba\x80\x80\x80\x10", False),  # 1 << 32 above the graph's: ONNX Runtime drops it
        (b"\xba\x80\x80\x80\x80\x80\x80\x80\x80\x01", False),
        (b"\xba\x80\x80\x80\x80\x80\x80\x80\x80\x7f", False),
        (b"\xba\x80\x80\x80\x00", True),  # longer than needed, the same value
        (b"\x3a", True),
    ],
)
def test_no_tag_hides_a_graph(tmp_path: Path, tag: bytes, read: bool) -> None:
    """A graph whose tag is not read as one would keep its weights out of the check."""
    tensor = onnx.TensorProto(name="t", data_type=1, dims=[1], data_location="EXTERNAL")
    for key, value in (("location", "../outside"), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    model = onnx.ModelProto(graph=onnx.GraphProto(name="g", initializer=[tensor]))
    content = model.SerializeToString()
    assert content[0] == 7 << 3 | 2
    file = tmp_path / "model.onnx"
    file.write_bytes(hidden(tag, content))
    with pytest.raises(BundleError, match="out of its folder" if read else "damaged"):
        read_model_file(file)


@pytest.mark.parametrize("content", [b"\x02\x00", b"\x00\x00", b"\x05abcd"])
def test_there_is_no_field_0(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(BundleError, match="damaged"):
        read_model_file(tmp_path / "model.onnx")


@pytest.mark.parametrize("location", ["weigh\nts", "a" * 5000, "../a\nb"])
def test_a_name_of_weights_that_is_no_line(tmp_path: Path, location: str) -> None:
    tensor = onnx.TensorProto(name="t", data_type=1, dims=[1], data_location="EXTERNAL")
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    model = onnx.ModelProto(graph=onnx.GraphProto(name="g", initializer=[tensor]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BundleError) as refused:
        read_model_file(tmp_path / "model.onnx")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("spare", [0, 1])
def test_metadata_is_copied_up_to_a_bound(tmp_path: Path, spare: int) -> None:
    """A file of zeros takes no room on a disk; a copy of its metadata would in memory."""
    model = onnx.ModelProto()
    entry = model.metadata_props.add()
    entry.key = "key"
    entry.value = "x" * (file_module._MAX_ENTRY_BYTES - 9 + spare)
    assert entry.ByteSize() == file_module._MAX_ENTRY_BYTES + spare
    file = tmp_path / "model.onnx"
    file.write_bytes(model.SerializeToString())
    if spare:
        with pytest.raises(BundleError, match="not an ONNX model, or damaged"):
            read_model_file(file)
    else:
        assert read_model_file(file).metadata == {"key": entry.value}


def test_the_same_bytes_are_walked_once_and_what_lies_beside_them_is_looked_at_again(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = []
    walk = file_module._Walk.message

    def counted(self: Any, view: memoryview, kind: str, depth: int) -> None:
        walks.extend([kind] if depth == 0 else [])
        walk(self, view, kind, depth)

    monkeypatch.setattr(file_module, "_walked", {})
    monkeypatch.setattr(file_module._Walk, "message", counted)
    copy = Path(shutil.copytree(written, tmp_path / "copy"))
    first = read_model_file(written / "model.onnx")
    assert read_model_file(copy / "model.onnx") == first
    assert walks == ["model"]
    # The control: other bytes at the same path, as many.
    (copy / "model.onnx").write_bytes(
        (written / "model.onnx").read_bytes().replace(b"tiny", b"tinz")
    )
    assert json.loads(read_model_file(copy / "model.onnx").metadata["edgedec"])["name"] == "tinz"
    assert walks == ["model"] * 2
    for weights in copy.glob("*.data"):
        weights.unlink()
    with pytest.raises(BundleError, match="weights are missing"):
        read_model_file(copy / "model.onnx")
    assert walks == ["model"] * 2
