"""Heads exported with their target: how well they are wired, and what is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import demo_head
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from edgedec import Pipeline
from edgedec.bundle import Bundle
from edgedec.errors import CheckpointError, InputError
from edgedec.export import ExportOptions, export_bundle
from edgedec.export.agreement import POOR
from edgedec.export.checkpoint import Checkpoint
from edgedec.export.heads import HeadCheckpoint

IDS = "eagle_aux_hidden_state_layer_ids"


def agreement(bundle: Path) -> list[float]:
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    figures = manifest["roles"]["head"]["variants"]["onnx"]["parity"]
    return [figures[f"agreement_{depth}"] for depth in (1, 2, 3)]


def exported(out: Path, head: Path) -> Path:
    options = ExportOptions(
        demo_head.MODELS / "target", out, head=head, weights="fp32", calibration="none"
    )
    export_bundle(options)
    return options.out


def test_the_trained_head_agrees_with_its_target() -> None:
    found = Bundle.open(demo_head.bundle(), verify=True)
    assert found.head is not None
    assert found.head.architecture == "eagle3"
    assert min(agreement(found.path)) > POOR


@pytest.mark.full  # test_export_mtp.py has tiny ones that are wired wrongly
@pytest.mark.usefixtures("full_exports")
@pytest.mark.parametrize(
    ("wiring", "remedy"),
    [
        ({"norm_before_residual": True}, "norm_before_residual is false"),
        ({"eagle_config": {IDS: [1, 2, 3]}}, r"one layer earlier .* \[0, 1, 2\]"),
    ],
    ids=["another residual", "one layer later"],
)
def test_wrong_wiring_is_named(wiring: dict[str, object], remedy: str, tmp_path: Path) -> None:
    """It would load and draft without an error, and little would be accepted."""
    head = demo_head.changed(tmp_path / "head", **wiring)
    with pytest.raises(CheckpointError, match=remedy):
        exported(tmp_path / "b", head)
    assert not (tmp_path / "b").exists()


@pytest.mark.full
def test_a_head_of_noise_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No neighbour is better, so that it is exported as it is."""
    tensors = load_file(demo_head.MODELS / "head" / "model.safetensors")
    head, rng = demo_head.changed(tmp_path / "head"), np.random.default_rng(0)
    noise = {
        name: tensor if name in ("d2t", "t2d") else _noise(tensor, rng)
        for name, tensor in tensors.items()
    }
    save_file(noise, head / "model.safetensors")
    with caplog.at_level(logging.WARNING, "edgedec"):
        assert agreement(exported(tmp_path / "b", head))[0] < 0.1
    assert "drafts nothing useful" in caplog.text
    with Pipeline.open(tmp_path / "b", drafter="head", draft_length=2) as pipeline:
        drafted = pipeline.generate("def read(", max_new_tokens=24)
    with Pipeline.open(tmp_path / "b", drafter="none") as pipeline:
        assert pipeline.generate("def read(", max_new_tokens=24).token_ids == drafted.token_ids


def _noise(tensor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.standard_normal(tensor.shape) * tensor.std()).astype(tensor.dtype)


def refused(head: Path, words: str) -> None:
    target = Checkpoint.open(demo_head.MODELS / "target").spec
    with pytest.raises(CheckpointError, match=words):
        HeadCheckpoint.open(head, target)


def test_what_a_head_lacks_or_has_wrong(tmp_path: Path) -> None:
    tensors = load_file(demo_head.MODELS / "head" / "model.safetensors")
    head = demo_head.changed(tmp_path / "head")
    file = head / "model.safetensors"

    def given(**changes: np.ndarray | None) -> Path:
        kept = {n: t for n, t in {**tensors, **changes}.items() if t is not None}
        save_file(kept, file)
        return head

    target = Checkpoint.open(demo_head.MODELS / "target").spec
    bias = {"midlayer.self_attn.q_proj.bias": np.zeros(8, np.float32)}
    notes = [HeadCheckpoint.open(given(**more), target).spec.note for more in ({}, bias)]
    assert notes == ["", "not used: midlayer.self_attn.q_proj.bias"]
    refused(given(**{"fc.weight": None}), "has no tensor fc.weight")
    refused(given(**{"fc.weight": tensors["fc.weight"][:, :64].copy()}), "expected \\[512, 1536\\]")
    refused(given(d2t=None), "has no tensor d2t")
    refused(given(d2t=tensors["d2t"][:7].copy()), "has 7 entries")
    refused(given(d2t=tensors["d2t"] + 4096), "expected offsets, not ids")
    ids = tensors["d2t"] + np.arange(len(tensors["d2t"]))
    refused(given(d2t=ids), "expected offsets, not ids")
    refused(given(d2t=tensors["d2t"].astype(np.float32)), "d2t is F32")
    file.unlink()
    (head / "pytorch_model.bin").write_bytes(b"\x80\x02")
    refused(head, "is a pickle")
    refused(tmp_path / "nothing", "is not a folder")


def test_other_formats_have_no_heads(tmp_path: Path) -> None:
    options = ExportOptions(
        demo_head.MODELS / "target", tmp_path / "b", head=demo_head.MODELS / "head",
        formats=("gguf",),
    )  # fmt: skip
    with pytest.raises(InputError, match="--head is for onnx"):
        export_bundle(options)
