"""``edgedec export --format gguf`` as a user meets it."""

import json

import pytest

from edgedec.bundle import Bundle

pytest.importorskip("gguf")
pytest.importorskip("llama_cpp")


def test_both_formats(run, checkpoints, tmp_path):
    source, out = checkpoints, tmp_path / "both"
    weights = "onnx=int8,gguf=q8_0"
    pair = [source / "target", "--draft", source / "draft", "--out", out]
    result = run("export", *pair, "--format", "onnx,gguf", "--weights", weights, "-v")
    assert result.exit_code == 0, result.stderr
    assert "gguf q8_0, " in result.stdout
    assert result.stdout.count("parity: ") == 4
    assert set(Bundle.open(out).formats) == {"onnx", "gguf"}
    shown = run("inspect", out).stdout
    assert "gguf, weights q8_0" in shown
    assert "onnx, weights int8" in shown


def test_as_json(run, checkpoints, tmp_path):
    """The draft may be stored otherwise than the target."""
    source, out = checkpoints, tmp_path / "made"
    options = ["--format", "gguf", "--weights", "f32", "--draft-weights", "f16", "--json"]
    pair = [source / "target", "--draft", source / "draft", "--out", out]
    report = json.loads(run("export", *pair, *options).stdout)
    assert [m["weights"] for m in report["models"]] == ["f32", "f16"]
    assert report["models"][0]["parity"]["kl_nats"] < 1e-6
