"""Whatever a manifest or a safetensors header says: it opens, or one clear line refuses it."""

import hashlib
import json

import damage
import numpy as np
import pytest
from damage import json_bytes, one_clear_line
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from edgedec.bundle import Bundle
from edgedec.bundle.manifest import MANIFEST
from edgedec.errors import BundleError, CheckpointError
from edgedec.export.safetensors import SafetensorsFile

DATA = b"the only file"
FACT = {"sha256": hashlib.sha256(DATA).hexdigest(), "bytes": len(DATA)}
ROLE = {
    "architecture": "llama",
    "source": "tiny",
    "licence": None,
    "dims": {"layers": 2},
    "tokenizer": {"file": "model", "content_sha256": "0" * 64},
    "variants": {"onnx": {"file": "model", "files": ["model"], "weights": "int4", "kv": "fp32"}},
}
GOOD = {
    "schema_version": 2,
    "roles": {"target": ROLE, "draft": ROLE},
    "generation": {},
    "files": {"model": FACT},
}
HEADER = {
    "a": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
    "b": {"dtype": "F16", "shape": [8], "data_offsets": [48, 64]},
}

randoms = st.randoms(use_true_random=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("bundle")
    (root / "model").write_bytes(DATA)
    return root


def opens(folder, data):
    """Whether a manifest of these bytes opens; any error but one clear line fails the test."""
    (folder / MANIFEST).write_bytes(data)
    try:
        bundle = Bundle.open(folder, verify=True)
    except BundleError as error:
        one_clear_line(error)
        return False
    for role in bundle.roles:
        for variant in role.variants.values():
            assert variant.path.resolve().is_relative_to(folder.resolve())
    return True


def test_the_sound_documents_open(folder, tmp_path):
    assert opens(folder, json.dumps(GOOD).encode())
    assert header_opens(tmp_path, json.dumps(HEADER).encode(), bytes(64))


@given(rng=randoms)
def test_damaged_manifests(folder, rng):
    opens(folder, json_bytes(damage.document(rng, GOOD)))


@given(rng=randoms)
def test_manifests_of_any_value(folder, rng):
    assert not opens(folder, json_bytes(damage.value(rng)))


@given(data=st.binary(max_size=200))
def test_manifests_of_any_bytes(folder, data):
    assert not opens(folder, data)


@given(at=st.integers(0, 700), byte=st.integers(0, 255))
def test_manifests_with_one_byte_changed(folder, at, byte):
    data = bytearray(json.dumps(GOOD).encode())
    data[at % len(data)] = byte
    opens(folder, bytes(data))


def header_opens(folder, header, data, length=None):
    """Whether a file with this header opens; then every tensor it names can be read."""
    file = folder / "model.safetensors"
    size = len(header) if length is None else length
    file.write_bytes(size.to_bytes(8, "little") + header + data)
    try:
        opened = SafetensorsFile(file)
        for name in opened.names:
            shape = opened.shape(name)
            assert opened.rows(name, 0, shape[0] if shape else 1).size == np.prod(shape)
    except CheckpointError as error:
        one_clear_line(error)
        return False
    return True


@given(rng=randoms)
def test_damaged_headers(tmp_path_factory, rng):
    folder = tmp_path_factory.mktemp("file")
    header_opens(folder, json_bytes(damage.document(rng, HEADER)), bytes(64))


@given(rng=randoms)
def test_headers_of_any_value(tmp_path_factory, rng):
    header_opens(tmp_path_factory.mktemp("file"), json_bytes(damage.value(rng)), bytes(64))


@pytest.mark.parametrize("dtype", ["a\nb", "a" * 9999, "\x1b[31m"])
def test_a_type_that_is_no_line(tmp_path, dtype):
    header = {"a\n": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}
    assert not header_opens(tmp_path, json_bytes(header), bytes(4))


@given(header=st.binary(max_size=64), length=st.integers(0, 2**64 - 1) | st.integers(0, 80))
def test_headers_of_any_bytes(tmp_path_factory, header, length):
    header_opens(tmp_path_factory.mktemp("file"), header, bytes(16), length)


@given(cut=st.integers(0, 400))
def test_files_cut_anywhere(tmp_path_factory, cut):
    whole = save({"a": np.ones((4, 3), np.float32), "b": np.ones(8, np.float16)})
    file = tmp_path_factory.mktemp("file") / "model.safetensors"
    file.write_bytes(whole[: cut % len(whole)])
    with pytest.raises(CheckpointError):
        SafetensorsFile(file)
