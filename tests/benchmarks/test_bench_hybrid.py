"""The section on hybrids: memory against attention's, and passes by kind of layer."""

from __future__ import annotations

from pathlib import Path

import pytest
import qwen_mtp_case
import tiny_bundles
import tiny_lfm2
import tiny_qwen3_5
from tiny_models import tiny_checkpoint, write_tiny_model

from benchmarks.bundles import Bundles, Suite, Unusable
from benchmarks.sections.hybrid import hybrid, kinds_of, rounded
from benchmarks.sections.limits import profiled
from edgedec.compare.records import Recorder
from edgedec.export import ExportOptions


def suite(folder: Path, **own: object) -> Suite:
    target = tiny_checkpoint(folder / "target", **own)
    options = ExportOptions(
        target, Path("hybrid"), weights="fp32", parity=False, calibration="none"
    )
    bundles = Bundles(folder, folder, {"target": tiny_bundles.kept(options)}, grows=False)
    return Suite(bundles, folder, prompts=1, threads=1)


def test_its_rows(tmp_path: Path) -> None:
    own = {name: value for name, value in tiny_qwen3_5.CONFIG.items() if name != "vocab_size"}
    short, long, *passes = hybrid(suite(tmp_path, **own), Recorder([].append, "hybrid"))
    assert short["state_bytes"] == long["state_bytes"] > 3 * 4 * 16 * 16 * 4
    # One layer of four attends.
    assert (short["tokens"], long["tokens"]) == (2048, 32768)
    assert long["all_attending_bytes"] == 4 * long["cache_bytes"] == 64 * short["cache_bytes"]
    assert 0.25 < long["share"] < short["share"]
    assert [row["rows"] for row in passes] == [1, 2, 4, 8]
    for row in passes:
        parts = sum(value for name, value in row.items() if name not in ("rows", "pass_ms"))
        assert 0 < parts < row["pass_ms"]
        assert row["recurrence"] > 0
        assert row["attention"] > 0


def test_operators_come_before_their_pass(tmp_path: Path) -> None:
    write_tiny_model(tmp_path, **tiny_lfm2.CONFIG)
    events = [(one["cat"], one["name"]) for one in profiled(tmp_path / "model.onnx", 1, 1)]
    first = events.index(("Session", "model_run"))
    assert "Node" in {kind for kind, _ in events[:first]}
    assert "Node" not in {kind for kind, _ in events[-1:]}


def test_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="needs a hybrid"):
        hybrid(suite(tmp_path), Recorder([].append, "hybrid"))


def test_what_int4_costs_by_kind_of_layer(tmp_path: Path) -> None:
    tensors = qwen_mtp_case.weights(qwen_mtp_case.config())
    for name, values in tensors.items():
        if name.endswith("linear_attn.out_proj.weight"):
            values[:] = 0  # what a recurrence computes is of no use, however it is rounded
    found = {(row["layers"], row["role"]): row for row in rounded(
        qwen_mtp_case.checkpoint(tmp_path / "target", tensors)
    )}  # fmt: skip
    lossless = {place for place, row in found.items() if row["kl_nats"] < 1e-9}
    assert lossless == {("recurrent", role) for role in ("mix_in", "mix_gate", "mix_out")}
    assert found["attending", "attention_gate"]["weights"] == 64 * 64
    assert found["all", "head"]["kl_nats"] > 0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (tiny_qwen3_5.CONFIG, {"recurrence", "recurrent", "attention", "attending", "mlp"}),
        (tiny_lfm2.CONFIG, {"attention", "attending", "mlp"}),
    ],
    ids=["qwen3_5", "lfm2"],
)
def test_every_node_has_a_kind(
    config: dict[str, object], expected: set[str], tmp_path: Path
) -> None:
    write_tiny_model(tmp_path, **config)
    kinds = kinds_of(tmp_path / "model.onnx")
    assert {*kinds.values()} == expected | {"head", "other"}
    attending = [name for name, kind in kinds.items() if kind == "attention"]
    assert [name.split(".")[1] for name in attending] == ["2"]
