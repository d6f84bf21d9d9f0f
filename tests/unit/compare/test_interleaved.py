"""What a race reports, and what it is run on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.bundles import Bundles
from edgedec.compare.interleaved import Comparison, compare
from edgedec.compare.records import Recorder
from edgedec.decoding.metrics import Metrics
from edgedec.errors import InputError
from edgedec.pipeline import GenerateOptions, Generation


def generation(token_ids: list[int], tpot_s: float) -> Generation:
    metrics = Metrics(emitted=len(token_ids) + 1, first_round=1, decode_s=tpot_s * len(token_ids))
    if tpot_s == 0:
        metrics.first_round = metrics.emitted
    events: Any = [SimpleNamespace(token=token) for token in token_ids]
    return Generation("", events, 1, "length", metrics, 0, {})


class Scripted:
    """A pipeline that answers from a list by prompt: token ids, seconds a token."""

    def __init__(self, *answers: tuple[list[int], float]) -> None:
        self._answers = answers

    def generate(self, prompt: int, options: GenerateOptions) -> Generation:
        return generation(*self._answers[prompt])


def race(**candidates: Scripted) -> tuple[Comparison, list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    prompts: Any = [(f"p{n}", n) for n in range(3)]
    found = compare(candidates, prompts, GenerateOptions(), Recorder(records.append, "test"))  # type: ignore[arg-type]
    return found, records


def test_a_text_of_one_round_is_recorded_but_not_compared() -> None:
    plain = Scripted(([1, 2], 0.2), ([3, 4], 0.2), ([5, 6], 0.4))
    quick = Scripted(([1, 2], 0.1), ([3, 4], 0.0), ([5, 7], 0.5))
    found, records = race(plain=plain, quick=quick)
    summary = found.summary("quick")
    assert found.ratios("quick") == pytest.approx([2.0, 0.8])
    assert summary["speedup"] == pytest.approx(1.0)
    assert (summary["identical"], summary["prompts"], summary["below_0.98"]) == (1, 2, 1)
    assert found.losses("quick") == ["p2"]
    assert [r["kind"] for r in records].count("run") == 6


def test_progress_counts_every_text_once() -> None:
    heard: list[tuple[int, int]] = []
    one = Scripted(*[([1, 2], 0.2)] * 3)
    compare(
        {"plain": one, "other": one},  # type: ignore[dict-item]
        [(f"p{n}", n) for n in range(3)],  # type: ignore[misc]
        GenerateOptions(),
        Recorder([].append, "test"),
        repeats=2,
        on_progress=lambda done, total: heard.append((done, total)),
    )
    assert heard == [(done, 14) for done in range(1, 15)]


def test_nothing_to_time_is_said() -> None:
    instant = Scripted(*[([1], 0.0)] * 3)
    with pytest.raises(InputError, match="longer"):
        race(plain=instant, quick=instant)


def test_what_was_trained_anew_is_exported_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import edgedec.export

    made = []

    def export(options: Any) -> None:
        options.out.mkdir(parents=True)
        (options.out / "manifest.json").write_text("{}")
        made.append(options.out)

    monkeypatch.setattr(edgedec.export, "export_bundle", export)
    for role in ("target", "draft"):
        (tmp_path / role).mkdir()
        (tmp_path / role / "config.json").write_text("{}")
        (tmp_path / role / "model.safetensors").write_bytes(b"weights")
    bundles = Bundles(tmp_path, tmp_path / "work")
    first = bundles.bundle("int4")
    assert bundles.bundle("int4") == first
    (tmp_path / "draft" / "model.safetensors").write_bytes(b"WEIGHTS")
    second = bundles.bundle("int4")
    assert second != first
    assert made == [first, second]


class Metered:
    """A meter of a machine on which every text takes 6 joules; what runs between counts nothing."""

    def __init__(self) -> None:
        self._used = 6.0

    def used(self) -> float:
        self._used = 6.0 - self._used
        return self._used


def test_energy_is_that_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedec.compare.interleaved.EnergyMeter", Metered)
    found, records = race(plain=Scripted(*[([1, 2], 0.2)] * 3))
    assert found.summary("plain")["joules_per_token"] == pytest.approx(6 / 3)
    assert [r["joules"] for r in records if r["kind"] == "run"] == [6, 6, 6]


def test_processor_time_is_that_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each text takes half a second of all threads; what runs between two texts counts nothing.
    readings = iter([1.0, 1.5, 8.0, 8.5, 9.0, 9.5])
    clock = SimpleNamespace(process_time=lambda: next(readings))
    monkeypatch.setattr("edgedec.compare.interleaved.time", clock)
    found, records = race(plain=Scripted(*[([1, 2], 0.2)] * 3))
    assert found.summary("plain")["processor_s_per_token"] == pytest.approx(0.5 / 3)
    assert [r["processor_s"] for r in records if r["kind"] == "run"] == [0.5, 0.5, 0.5]


def test_energy_that_is_unknown_for_one_text_is_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([0.0, 6.0, 0.0, None, 0.0, 6.0])
    monkeypatch.setattr(
        "edgedec.compare.interleaved.EnergyMeter",
        lambda: SimpleNamespace(used=lambda: next(answers)),
    )
    found, _ = race(plain=Scripted(*[([1, 2], 0.2)] * 3))
    assert "joules_per_token" not in found.summary("plain")
