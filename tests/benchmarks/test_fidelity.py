"""The divergence of four-bit weights from their source, on models whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import tiny_checkpoint

from benchmarks.bundles import Bundles, Suite
from benchmarks.race import _child
from benchmarks.race._child import Tools
from benchmarks.race.children import CRASH, Failed
from benchmarks.sections import fidelity
from benchmarks.sections.fidelity import OURS, Sample, angle_bytes, source_logs, with_best
from benchmarks.workloads import divergence
from edgedec.compare.records import Recorder
from edgedec.export import ExportOptions, export_bundle
from edgedec.pipeline import Pipeline

IDS = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5]


def logs(logits: Any) -> Any:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four tokens: rows 0-2, 4-6 and 8 predict something."""
    monkeypatch.setattr(_child, "WINDOW", 4)


PREDICTING = [0, 1, 2, 4, 5, 6, 8]


def measured(folder: Path, source: Any, model: Any) -> dict[str, Any]:
    """The divergence of a table of logits, a row for each place of ``IDS``, from another."""
    file = folder / "source.npy"
    np.save(file, logs(source)[PREDICTING].astype(np.float32))
    starts = iter(range(0, len(IDS), 4))
    return Tools().divergence(IDS, file, lambda part: model[(at := next(starts)) : at + len(part)])


@pytest.mark.usefixtures("windows")
def test_the_divergence_of_two_tables_is_that_of_their_predictions(tmp_path: Path) -> None:
    source, model = np.random.default_rng(0).normal(size=(2, len(IDS), 8))
    found = measured(tmp_path, source, model)
    p, q = logs(source)[PREDICTING], logs(model)[PREDICTING]
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    assert found["kl_nats"] == pytest.approx(kl.mean(), rel=1e-5)
    assert found["kl_of_windows"] == pytest.approx([kl[:3].mean(), kl[3:6].mean(), kl[6]], rel=1e-5)
    assert found["top1"] == np.mean(p.argmax(1) == q.argmax(1))
    came = [IDS[place + 1] for place in PREDICTING]
    assert found["perplexity"] == pytest.approx(np.exp(-q[np.arange(7), came].mean()))


@pytest.mark.usefixtures("windows")
def test_a_model_diverges_from_others_only(tmp_path: Path) -> None:
    source = np.random.default_rng(0).normal(size=(len(IDS), 8))
    same = measured(tmp_path, source, source)
    assert same["kl_nats"] == pytest.approx(0, abs=1e-6)
    assert same["top1"] == 1
    # Columns of no token count as impossible.
    wide = np.concatenate([source, np.full((len(IDS), 3), 9.0)], axis=1)
    assert measured(tmp_path, source, wide)["kl_nats"] == pytest.approx(0, abs=1e-6)
    # The twin: rows of the tokens before.
    assert measured(tmp_path, source, np.roll(source, 1, axis=0))["kl_nats"] > 0.1
    with pytest.raises(ValueError, match="shorter"):
        measured(tmp_path, source, source[:-2])


def test_an_export_is_as_far_from_its_source_as_its_rounding(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(tmp_path / "checkpoint", max_position_embeddings=1024)
    other = tiny_checkpoint(tmp_path / "other", 1, max_position_embeddings=1024)
    ids = [int(token) for token in np.random.default_rng(0).integers(8, 200, 40)]
    sample = Sample("code", ids, tmp_path / "source.npy")
    found = {}
    for name, weights, source in (
        ("fp32", "fp32", checkpoint), ("int4", "int4", checkpoint), ("twin", "fp32", other),
    ):  # fmt: skip
        out = tmp_path / name
        export_bundle(ExportOptions(checkpoint, out, weights=weights, parity=False))
        np.save(sample.source, source_logs(source, ids))
        suite = Suite(Bundles(tmp_path, tmp_path), tmp_path, 1, threads=1)
        size, of_texts = fidelity._measured(suite, out, [sample])
        found[name] = of_texts["code"]["kl_nats"]
        file = out / "target" / "model.onnx"
        with Pipeline.open(out, drafter="none", plan="none") as pipeline:
            assert size == pipeline.target.info.weight_bytes - angle_bytes(file)
            assert divergence(pipeline.target, ids, sample.source) == of_texts["code"]
        assert 0 < angle_bytes(file) < size
    assert found["fp32"] < 1e-6 < 1e-5 < found["int4"] < found["twin"]


def test_ours_is_compared_with_the_best_that_is_not_larger() -> None:
    def row(model: str, size: int, kl: float) -> dict[str, Any]:
        return {"model": model, "weight_bytes": size, "code_kl_nats": kl}

    peers = [row("small", 90, 0.4), row("equal", 104, 0.2), row("larger", 106, 0.1)]
    ours, tiny, *others = with_best(
        [row(OURS, 100, 0.3), row(f"{OURS}, tiny", 50, 0.9), *peers,
         {"model": "absent", "skipped": "no room"}]
    )  # fmt: skip
    assert ours["code_kl_of_best"] == pytest.approx(1.5)
    assert tiny["code_kl_of_best"] is None
    assert not any("code_kl_of_best" in other for other in others)


def test_a_peer_whose_environment_cannot_be_made_is_skipped_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise Failed(CRASH, "no space left")

    monkeypatch.setattr(fidelity.environment, "make", refused)
    monkeypatch.setattr(fidelity, "_models", lambda *_: {})
    monkeypatch.setattr(fidelity, "_samples", lambda *_: [])
    tiny_checkpoint(tmp_path / "target")
    records: list[dict[str, Any]] = []
    suite = Suite(Bundles(tmp_path, tmp_path / "work"), tmp_path, 1)
    (row,) = fidelity.fidelity(suite, Recorder(records.append, "fidelity"))
    assert row == {"model": "openvino", "skipped": "no space left"}
    assert "no space left" in [record.get("reason") for record in records]
