"""`edgedec profile`: a tiny pair measured for real, kept, and measured again when it must be."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_bundles
import tiny_models
import tiny_tokenizers

from edgedec._support.fields import from_json
from edgedec._support.sandbox import Stopped
from edgedec.errors import ProfileError
from edgedec.export import ExportOptions
from edgedec.hardware.device import Device
from edgedec.models.registry import spec_for
from edgedec.profiling import children, measuring, store
from edgedec.records.profile import Profile
from edgedec.runtimes import registry
from edgedec.runtimes.onnx.openvino import places

ONE = ("--threads", "1")
needs_pinning = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not keep threads on cores"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store of its own, and short measurements."""
    monkeypatch.setattr(measuring, "BUDGET_S", 0.02)
    monkeypatch.setattr(measuring, "WIDTHS", (1, 2, 4, 8))
    monkeypatch.setattr(measuring, "CONTEXTS", (32, 64))
    monkeypatch.setenv(store.FOLDER, str(tmp_path / "profiles"))
    return tmp_path / "profiles"


def measured(run: Callable, *args: object) -> Profile:
    result = run("profile", *args, "--json")
    assert result.exit_code == 0, result.output
    return from_json(Profile, json.loads(result.stdout), "profile", ProfileError)


def never(*args: object, **more: object) -> None:
    raise AssertionError("measured again")


@pytest.fixture
def no_children(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(children, "measure", never)


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
        assert 0 <= one.launch_s <= one.seconds(1, 32)
    assert len(first.traces) == 8
    for trace in first.traces:
        text = list(trace.tokens[trace.prompt :])
        assert [row[0] for row in trace.target.ids] == text
        assert trace.draft is not None
        assert len(trace.draft.ids) == len(text)
    assert first.overhead_s > 0

    no_children()
    assert measured(run, bundle, *ONE) == first
    table = run("profile", bundle, *ONE)
    assert table.exit_code == 0
    assert "onnx cpu x1" in table.stdout
    assert "most likely token is the target's" in table.stdout
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
    assert any("damaged: measuring again" in line for line in caplog.messages)
    assert json.loads(file.read_text("utf-8"))["overhead_s"] == again.overhead_s


@pytest.fixture(scope="module")
def other_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with another tokenizer and a context shorter than a calibration text."""
    folder = tmp_path_factory.mktemp("other")
    backend = tiny_tokenizers.KINDS["llama"]()
    config = tiny_models.tiny_config(
        vocab_size=backend.get_vocab_size() + 6, num_hidden_layers=1, max_position_embeddings=128
    )
    tiny_models.save_checkpoint(
        folder / "draft", config, tiny_models.random_tensors(spec_for(config))
    )
    tiny_tokenizers.save(backend, folder / "draft")
    options = ExportOptions(folder / "draft", folder / "bundle", weights="fp32", parity=False)
    return tiny_bundles.kept(options)


def test_a_draft_of_another_vocabulary(
    run: Callable, plain_bundle: Path, other_draft: Path
) -> None:
    found = measured(run, plain_bundle, *ONE, "--draft", other_draft)
    target, draft = found.measured
    assert (target.role, draft.role) == ("target", "draft")
    assert target.vocab_size != draft.vocab_size
    assert found.traces
    for trace in found.traces:
        assert len(trace.tokens) <= draft.max_context
        assert trace.draft is not None
        assert all(id < target.vocab_size for row in trace.draft.ids for id in row)
    # Without that draft it is another pair.
    alone = measured(run, plain_bundle, *ONE)
    assert [one.role for one in alone.measured] == ["target"]
    assert all(trace.draft is None for trace in alone.traces)


@needs_pinning
def test_disjoint_cores_are_measured_at_once(run: Callable, bundle: Path) -> None:
    found = measured(run, bundle, "--place", "cpu:")
    if len(found.measured) < 2:
        pytest.skip("one core")
    target, draft = (one.place for one in found.measured)
    assert target.apart_from(draft)
    (both,) = found.contention
    assert (both.target, both.draft) == (target.label, draft.label)
    assert min(both.target_factor, both.draft_factor) >= 1


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
    run: Callable, one_line: Callable, bundle: Path, monkeypatch: pytest.MonkeyPatch, quick: Path
) -> None:
    def crash(*_: object) -> None:
        raise Stopped("it crashed with SIGSEGV")

    monkeypatch.setattr(children, "_ask", crash)
    line = one_line(run("profile", bundle, *ONE))
    assert "onnx cpu x1: it crashed with SIGSEGV" in line
    assert not quick.exists()


def test_own_prompts(run: Callable, bundle: Path, tmp_path: Path, no_children: Callable) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one two", "id": "first"}\n{"prompt": "three"}\n')
    found = measured(run, bundle, *ONE, "--prompts", file)
    assert [(trace.name, trace.temperature) for trace in found.traces] == [
        ("first", 0.0), ("first", 0.8), ("2", 0.0), ("2", 0.8),
    ]  # fmt: skip
    no_children()
    # The user's texts stay in force until other texts are given.
    assert measured(run, bundle, *ONE).prompts == found.prompts != "built-in"


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


def test_no_bundle(run: Callable, one_line: Callable, tmp_path: Path) -> None:
    assert str(tmp_path) in one_line(run("profile", tmp_path))
