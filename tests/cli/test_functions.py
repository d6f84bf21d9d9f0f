"""``edgedec.convert``, ``pull`` and ``plan`` do what the commands do, and report their progress."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profiles import draft, profile, target
from test_cli_plan import run_for_nothing

import edgedec
from edgedec import Bundle, Library, Pipeline, functions
from edgedec._support.fields import to_json
from edgedec.cli import export as export_command
from edgedec.errors import InputError
from edgedec.export import ExportOptions, ExportReport
from edgedec.library import Form
from edgedec.loading.sources import Models
from edgedec.planning import decisions, remembered
from edgedec.profiling import measuring
from edgedec.profiling import run as profiling
from edgedec.profiling.store import identity
from edgedec.records.plan import Decision

SHORT: dict[str, Any] = {"prompt_tokens": 20, "new_tokens": 40}
Seen = list[tuple[str, int, int]]


class Progress:
    """What a callback was told."""

    def __init__(self) -> None:
        self.seen: Seen = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.seen.append((stage, done, total))

    @property
    def stages(self) -> list[str]:
        return list(dict.fromkeys(stage for stage, _, _ in self.seen))

    def is_sound(self) -> bool:
        return bool(self.seen) and all(0 <= done <= total for _, done, total in self.seen)


class TestConvert:
    @pytest.mark.parametrize(
        ("words", "named"),
        [
            ([], {}),
            (["--format", "onnx,gguf"], {"format": "onnx,gguf"}),
            (["--format", "onnx, gguf"], {"format": ["onnx", "gguf"]}),
            (["--rows", "1,4"], {"rows": [1, 4]}),
            (["--static-rows", "1,8"], {"static_rows": "1,8"}),
            (["--format", "onnx,gguf", "--static-context", "64"],
             {"format": "onnx,gguf", "static_context": 64}),
            (["--exporter", "optimum"], {"format": "optimum"}),
            (["--no-calibrated"], {"calibration": "none"}),
            (["--no-parity", "--calibration", "none"], {"parity": False, "calibration": "none"}),
            (["--overwrite", "--draft", "d"], {"overwrite": True, "draft": "d"}),
        ],
        ids=str,
    )  # fmt: skip
    def test_values_are_those_of_the_command(
        self, run: Callable, monkeypatch: pytest.MonkeyPatch, words: list[str], named: Any
    ) -> None:
        asked: list[ExportOptions] = []

        def kept(options: ExportOptions, progress: Any) -> ExportReport:
            asked.append(options)
            raise InputError("only asked")

        monkeypatch.setattr(functions, "export_bundle", kept)
        monkeypatch.setattr("edgedec.export.export_bundle", kept)
        assert export_command is not None
        assert "only asked" in run("export", "t", "--out", "o", *words).output
        with pytest.raises(InputError, match="only asked"):
            edgedec.convert("t", "o", **named)
        assert asked[0] == asked[1]

    def test_a_bundle_is_made_and_progress_reported(
        self, checkpoints: Path, tmp_path: Path
    ) -> None:
        progress = Progress()
        report = edgedec.convert(
            checkpoints / "target", tmp_path / "made", weights="fp32", progress=progress
        )
        assert Bundle.open(report.path).target.source == "target"
        assert progress.is_sound()
        assert "target" in progress.stages

    def test_a_wrong_name_says_the_right_one(self) -> None:
        with pytest.raises(TypeError, match=r"unknown option 'weight': did you mean weights"):
            edgedec.convert("t", "o", weight="int8")  # type: ignore[call-arg]
        with pytest.raises(InputError, match="rows 4,1: expected widths"):
            edgedec.convert("t", "o", rows=[4, 1])


class TestPull:
    def test_a_checkpoint_is_added_once(self, checkpoints: Path, tmp_path: Path) -> None:
        library, said, progress = Library(tmp_path / "library"), list[str](), Progress()
        options: Any = {"weights": "fp32", "library": library}
        found = edgedec.pull(checkpoints / "target", progress=progress, say=said.append, **options)
        assert [model.id for model in library.models()] == [found.id]
        assert found.record.form == Form("fp32")
        assert progress.is_sound()
        assert any(line.startswith("making ") for line in said)
        assert edgedec.pull(str(checkpoints / "target"), **options) == found
        with Pipeline.open(found.path, threads=1, plan="none") as pipeline:
            assert pipeline.generate([5, 6, 7], max_new_tokens=2).token_ids

    def test_what_needs_no_library_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="demo needs no library: open it where it is"):
            edgedec.pull("demo", library=Library(tmp_path))
        with pytest.raises(InputError, match="calibrated is for int4"):
            edgedec.pull("x", weights="int8", calibrated=True)
        with pytest.raises(InputError, match="weights is 'int3': expected one of auto, int4"):
            edgedec.pull("x", weights="int3")
        with pytest.raises(InputError, match="max_kl is nan: expected"):
            edgedec.pull("x", max_kl=float("nan"))

    def test_models_of_a_hub_report_their_bytes(
        self, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
        import hub_server

        folder = repository / "models" / "demo" / "draft"
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        progress = Progress()
        with hub_server.serving(hub_server.Hub("some-org/Tiny-1M", files)) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub.address)
            monkeypatch.delenv("HF_TOKEN", raising=False)
            found = edgedec.pull(
                "some-org/Tiny-1M",
                weights="fp32",
                progress=progress,
                library=Library(tmp_path / "library"),
            )
        assert found.name == "some-org/Tiny-1M"
        assert progress.is_sound()
        size = found.record.origin.bytes
        fetched = [one for one in progress.seen if one[0].startswith("fetch")]
        assert "fetching model.safetensors" in progress.stages
        assert fetched[-1] == ("fetched some-org/Tiny-1M", size, size)
        assert {total for _, _, total in fetched} == {size}


class TestPlan:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each_place_once: None) -> None:
        """A store of its own, and short measurements."""
        monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
        monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
        monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
        monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "profiles"))

    @pytest.fixture
    def known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run_for_nothing(monkeypatch)
        found = profile(target(), draft())
        monkeypatch.setattr(profiling, "profile", lambda *args: found)

    @pytest.mark.full
    def test_a_pair_is_measured_and_the_plan_is_followed(self, bundle: Path) -> None:
        progress = Progress()
        found = edgedec.plan(bundle, progress=progress, **SHORT)
        assert progress.is_sound()
        kept = remembered.is_kept(identity(Models.find(bundle)))
        assert kept == (not found.untried)  # as on a machine that is too busy
        with Pipeline.open(bundle) as pipeline:
            assert pipeline.plan["plan"] == (found.chosen.plan.label if kept else None)

    def test_the_decision_is_that_of_the_command(
        self, run: Callable, known: None, tmp_path: Path
    ) -> None:
        words = ["--prompt-tokens", "20", "--new-tokens", "40", "--memory", "1GB"]
        out = tmp_path / "plan.json"
        found = edgedec.plan("demo", memory="1GB", out=out, **SHORT)
        assert found.memory == 10**9
        told = json.loads(run("plan", "demo", *words, "--json").stdout)
        ours = json.loads(json.dumps(to_json(found)))
        assert {**ours, "made": None} == {**told, "made": None}
        assert json.loads(out.read_text())["chosen"] == told["chosen"]

    def test_a_disturbed_plan_replaces_no_quiet_one_and_that_is_said(
        self, known: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        honest, disturbed = decisions.plan, [""]

        def planned(*args: Any, **named: Any) -> Decision:
            here = {"machine": dict(of.machine), "bundle": of.bundle, "versions": dict(of.versions)}
            return replace(honest(*args, **named), disturbed=disturbed[0], **here)

        monkeypatch.setattr(decisions, "plan", planned)
        said = "the plan is not stored: the machine was busy (50% by others)"
        of = identity(Models.find("demo"))
        with caplog.at_level(logging.WARNING, "edgedec"):
            edgedec.plan("demo", **SHORT, remember=False)
            assert not remembered.is_kept(of)
            edgedec.plan("demo", **SHORT)
            assert remembered.is_kept(of)
            assert not any(message.startswith(said) for message in caplog.messages)
            disturbed[0] = "50% by others"
            edgedec.plan("demo", **SHORT)
        assert any(message.startswith(said) for message in caplog.messages)

    def test_texts_like_your_own(
        self, known: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        asked: list[Any] = []
        honest = decisions.plan

        def kept(*args: Any, options: Any, **named: Any) -> Decision:
            asked.append((options.prompts_name, list(options.prompts)))
            return honest(*args, options=options, **named)

        monkeypatch.setattr(decisions, "plan", kept)
        file = tmp_path / "mine.jsonl"
        file.write_text('{"prompt": "def f("}\n{"prompt": "class A"}\n')
        edgedec.plan("demo", prompts=file, **SHORT)
        edgedec.plan("demo", prompts=["def f(", "class A"], **SHORT)
        texts = ["def f(", "class A"]
        assert asked == [("mine.jsonl", texts), ("prompts", texts)]
        with pytest.raises(InputError, match="prompts: expected texts that are not empty"):
            edgedec.plan("demo", prompts=[""])

    def test_wrong_options(self) -> None:
        with pytest.raises(TypeError, match=r"unknown option 'memroy': did you mean memory\?"):
            edgedec.plan("demo", memroy="2GB")  # type: ignore[call-arg]
        with pytest.raises(InputError, match="memory is 'lots': expected a size such as 2GB"):
            edgedec.plan("demo", memory="lots")
