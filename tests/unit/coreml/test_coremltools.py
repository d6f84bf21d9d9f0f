"""coremltools reads what is written here, and says the same of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_program
from coreml_loader import check_with_coremltools

from edgedec.coreml import Package, package_files
from edgedec.coreml.package import MODEL
from edgedec.coreml.types import Kind, Stored, TensorType
from edgedec.coreml.writer import PackageWriter

pytestmark = pytest.mark.coreml


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_program.write(tmp_path / "tiny.mlpackage")


@pytest.mark.filterwarnings("ignore")
def test_the_loader_accepts_the_program(folder: Path) -> None:
    assert check_with_coremltools(folder) > 20


@pytest.mark.filterwarnings("ignore")
def test_the_loader_sees_another_type(tmp_path: Path) -> None:
    with PackageWriter(tmp_path / "other.mlpackage") as writer:
        function = tiny_program.function("two", tiny_program.stored(writer))
        index = next(i for i, op in enumerate(function.operations) if op.type == "silu")
        silu = function.operations[index]
        wrong = ((silu.outputs[0][0], TensorType(Kind.FLOAT32, silu.outputs[0][1].shape)),)
        function.operations[index] = replace(silu, outputs=wrong)  # type: ignore[index]
        writer.add(function)
        writer.save("two", "a tiny program", tiny_program.FACTS)
    with pytest.raises((AssertionError, ValueError)):
        check_with_coremltools(tmp_path / "other.mlpackage")


@pytest.mark.filterwarnings("ignore")
def test_its_protobuf_reads_the_same_message(folder: Path) -> None:
    from coremltools.proto import Model_pb2

    data = (folder / MODEL).read_bytes()
    model = Model_pb2.Model.FromString(data)
    assert {name: len(f.inputs) for name, f in model.mlProgram.functions.items()} == {
        "one": 3,
        "two": 3,
    }
    assert model.description.defaultFunctionName == "two"
    for each in model.description.functions:
        assert [state.name for state in each.state] == ["kept"]
    unknown = [field for field, _ in model.ListFields() if not field.name]
    assert not unknown


@pytest.mark.filterwarnings("ignore")
def test_reading_the_package_changes_no_byte(folder: Path) -> None:
    from coremltools.models.utils import load_spec

    before = [file.read_bytes() for file in package_files(folder)]
    load_spec(str(folder))
    assert [file.read_bytes() for file in package_files(folder)] == before


@pytest.mark.filterwarnings("ignore")
def test_its_storage_reads_the_same_weights(folder: Path) -> None:
    from coremltools.libmilstoragepython import _BlobStorageReader

    reader = _BlobStorageReader(str(folder / "Data/com.apple.CoreML/weights/weight.bin"))
    readers = {
        Kind.FLOAT16: lambda at: np.array(reader.read_fp16_data(at), np.uint16).view(np.float16),
        Kind.INT4: lambda at: np.array(reader.read_int4_data(at), np.int8),
        Kind.UINT4: lambda at: np.array(reader.read_uint4_data(at), np.uint8),
    }
    package, seen = Package.open(folder), set()
    for operation in package.function("two").operations:
        given = operation.inputs.values() if operation.value is None else [(operation.value,)]
        for (place,) in (each for each in given if len(each) == 1):
            if isinstance(place, Stored):
                found = readers[place.type.kind](place.offset).reshape(place.type.shape)
                np.testing.assert_array_equal(found, package.blob.tensor(place))
                seen.add(place.type.kind)
    assert seen == set(readers)
