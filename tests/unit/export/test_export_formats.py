"""Formats are found by the name of their file."""

import pytest

from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.export import formats

TOY = """
WEIGHTS = ("small", "large")
DEFAULT_WEIGHTS = "small"
"""


@pytest.fixture
def with_toy(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(TOY)
    (tmp_path / "broken.py").write_text("import a_package_that_is_not_installed\n")
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])


def test_a_new_file_is_a_new_format(with_toy):
    assert set(formats.names()) >= {"toy", "onnx", "gguf"}
    assert formats.exporter("toy").DEFAULT_WEIGHTS == "small"


def test_a_format_whose_package_is_missing_harms_no_other(with_toy):
    with pytest.raises(RuntimeUnavailable, match="broken needs a_package_that_is_not_installed"):
        formats.exporter("broken")
    assert formats.exporter("onnx").WEIGHTS


def test_there_is_no_such_format():
    with pytest.raises(InputError, match=r"no format '\.\./job'"):
        formats.exporter("../job")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, {"onnx": None, "toy": None}),
        ("onnx=int8", {"onnx": "int8", "toy": None}),
        ("toy=large,onnx=int4", {"onnx": "int4", "toy": "large"}),
        (" toy = large , onnx = int4 ", {"onnx": "int4", "toy": "large"}),
    ],
)
def test_weights_by_format(with_toy, given, found):
    both = ("onnx", "toy")
    assert {name: formats.weights_of(name, given, "--weights", both) for name in both} == found


def test_one_format_needs_no_name(with_toy):
    assert formats.weights_of("toy", "large", "--weights", ("toy",)) == "large"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("large", "say for which format, as in --weights onnx=auto,toy=small"),
        ("toy=int4", "'int4' is not a weight format of toy: expected one of small, large"),
        ("gguf=q4_0", "'gguf' is not exported here, only onnx, toy"),
        ("toy=", "'' is not a weight format"),
        ("toy=large,", "'' is not exported here"),
    ],
)
def test_weights_that_make_no_sense(with_toy, given, words):
    with pytest.raises(InputError, match=words):
        formats.weights_of("onnx", given, "--weights", ("onnx", "toy"))
