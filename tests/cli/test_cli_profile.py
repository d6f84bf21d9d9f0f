"""`edgedec profile`: a tiny pair measured for real, kept, and measured again when it must be."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_bundles
import tiny_models
import tiny_tokenizers

from edgedec._support.fields import from_json
from edgedec._support.sandbox import Stopped
from edgedec.decoding import drafting
from edgedec.errors import ProfileError
from edgedec.export import ExportOptions
from edgedec.hardware.device import Device
from edgedec.models.registry import spec_for
from edgedec.profiling import children, measuring, store
from edgedec.records.profile import Profile
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.openvino import places

ONE = ("--threads", "1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, each_place_once: None) -> Path:
    """A store of its own, and short measurements."""
    monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
    monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
    monkeypatch.setenv("EDGEDEC_CACHE", str(tmp_path / "profiles"))
    return tmp_path / "profiles"


def measured(run: Callable, *args: object) -> Profile:
    result = run("profile", *args, "--json")
    assert result.exit_code == 0, result.output
    return from_json(Profile, json.loads(result.stdout), "profile", ProfileError)


def never(*args: object, **more: object) -> None:
    raise AssertionError("measured again")


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def stop() -> None:
        monkeypatch.setattr(children, "measure", never)

    return stop


@pytest.fixture(autouse=True)
def without_openvino(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A place more where it is installed; call the result to have it."""
    found = places.find_devices
    monkeypatch.setattr(places, "find_devices", list)
    return lambda: monkeypatch.setattr(places, "find_devices", found)


def test_openvino_is_a_place_of_the_target(
    run: Callable, bundle: Path, without_openvino: Callable[[], None]
) -> None:
    pytest.importorskip("openvino")
    without_openvino()
    found = measured(run, bundle, *ONE)
    labels = [(one.role, one.place.label) for one in found.measured if one.parity.usable]
    assert [label for _, label in labels].count("onnx cpu x1") == 2
    ((role, label),) = [one for one in labels if "OpenVINO" in one[1]]
    assert role == "target"
    assert label.startswith("onnx OpenVINO x")


def test_a_pair_is_measured_kept_and_read_again(
    run: Callable, bundle: Path, no_children: Callable, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    first = measured(run, bundle, *ONE)
    assert [(one.role, one.place.label) for one in first.measured] == [
        ("target", "onnx cpu x1"), ("draft", "onnx cpu x1"),
    ]  # fmt: skip
    for one in first.measured:
        assert one.parity.usable
        assert [times.context for times in one.times] == [32, 64]
        assert all(seconds > 0 for times in one.times for seconds in times.seconds)
        assert min(one.prefill_s, one.load_s, one.rss_bytes, one.weight_bytes) > 0
    drafters = {(one.drafter, one.draft_length) for one in first.rounds}
    assert {("none", 0), ("lookup", 8), ("model", 8), ("model", None)} <= drafters
    for one in first.rounds:
        assert 1 <= one.tokens <= one.rows
        assert one.overhead_s > 0
        assert (one.draft_passes > 0) <= (one.drafter not in ("none", "lookup", "recycle"))

    no_children()
    assert measured(run, bundle, *ONE) == first
    table = run("profile", bundle, *ONE)
    assert table.exit_code == 0
    assert "onnx cpu x1" in table.stdout
    assert "the draft model's first token is right" in table.stdout
    assert not caplog.messages

    # Another version of a runtime: said, and measured again.
    monkeypatch.setattr(store, "package_versions", lambda _: {"numpy": "99"})
    assert str(run("profile", bundle, *ONE).exception) == "measured again"
    assert any("runtimes changed" in line and "99" in line for line in caplog.messages)


def test_a_damaged_profile_is_measured_again(
    run: Callable, bundle: Path, quick: Path, caplog
) -> None:
    measured(run, bundle, *ONE)
    (file,) = quick.iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    again = measured(run, bundle, *ONE)
    assert any("is damaged: it is not JSON: measuring again" in line for line in caplog.messages)
    assert (
        json.loads(file.read_text("utf-8"))["content"]["draft_overhead_s"] == again.draft_overhead_s
    )


@pytest.fixture(scope="module")
def other_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with another tokenizer and a context shorter than a calibration text."""
    folder = tmp_path_factory.mktemp("other")
    backend = tiny_tokenizers.KINDS["llama"]()
    config = tiny_models.tiny_config(
        vocab_size=backend.get_vocab_size() + 6, num_hidden_layers=1, max_position_embeddings=128,
        intermediate_size=32,
    )  # fmt: skip
    tiny_models.save_checkpoint(
        folder / "draft", config, tiny_models.random_tensors(spec_for(config))
    )
    tiny_tokenizers.save(backend, folder / "draft")
    options = ExportOptions(folder / "draft", folder / "bundle", weights="fp32", parity=False)
    return tiny_bundles.kept(options)


@pytest.mark.full
def test_a_draft_of_another_vocabulary(
    run: Callable, plain_bundle: Path, other_draft: Path
) -> None:
    found = measured(run, plain_bundle, *ONE, "--draft", other_draft)
    target, draft = found.measured
    assert (target.role, draft.role) == ("target", "draft")
    assert target.vocab_size != draft.vocab_size
    assert not found.notes
    assert any(one.drafter == "model" for one in found.rounds)
    # Without that draft it is another pair.
    alone = measured(run, plain_bundle, *ONE)
    assert [one.role for one in alone.measured] == ["target"]
    drafters = {one.drafter for one in alone.rounds}
    assert drafters >= {"none", "lookup", "recycle"}
    assert not any(drafting.info(name).needs_model for name in drafters)


def test_a_device_that_does_not_work_is_reported_and_not_used(
    run: Callable, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx = registry.adapter("onnx")
    gone = Device("onnx", "NPU", "npu", "of the test", provider="GoneExecutionProvider")
    listed = [*onnx.devices(), gone]
    monkeypatch.setattr(onnx, "devices", lambda: listed)
    found = measured(run, bundle, *ONE)
    assert [one.place.label for one in found.of("target")] == ["onnx cpu x1"]
    failed = next(one for one in found.measured if one.place.device == "NPU")
    assert failed.parity.reason
    shown = run("profile", bundle, *ONE).stdout
    assert f"target on {failed.place.label} cannot be used: {failed.parity.reason}" in shown


def test_a_target_that_works_nowhere_is_an_error(
    run: Callable, one_line: Callable, bundle: Path, monkeypatch: pytest.MonkeyPatch, quick: Path,
    outcomes: dict,
) -> None:  # fmt: skip
    def crash(*_: object) -> None:
        raise Stopped("it crashed with SIGSEGV")

    outcomes.clear()
    monkeypatch.setattr(children, "_ask", crash)
    line = one_line(run("profile", bundle, *ONE))
    assert "onnx cpu x1: it crashed with SIGSEGV" in line
    assert not quick.exists()


@pytest.mark.full
def test_own_prompts(run: Callable, bundle: Path, tmp_path: Path, no_children: Callable) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one two", "id": "first"}\n{"prompt": "three"}\n')
    usual = measured(run, bundle, *ONE)
    no_children()
    found = measured(run, bundle, *ONE, "--prompts", file)
    assert found.measured == usual.measured
    assert found.texts == "2 texts of prompts.jsonl"
    assert found.prompts != usual.prompts == "built-in"
    # The user's texts stay in force until other texts are given.
    assert measured(run, bundle, *ONE) == found


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--place", "nowhere"), "no place is left"),
        (("--format", "gguf"), "no place is left"),
        (("--draft", "missing.gguf"), "no such file"),
    ],
)
def test_refused_in_one_line(
    run: Callable, one_line: Callable, bundle: Path, args: tuple, said: str
) -> None:
    assert said in one_line(run("profile", bundle, *args))


@pytest.mark.parametrize("lines", ["", '{"messages": []}\n', '{"prompt": ""}\n', "no json\n"])
def test_prompts_that_are_none_are_refused(
    run: Callable, one_line: Callable, bundle: Path, tmp_path: Path, lines: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(lines)
    assert "prompts.jsonl" in one_line(run("profile", bundle, "--prompts", file))
