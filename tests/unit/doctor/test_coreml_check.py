"""The self-check of CoreML programs: a double of coremltools passes, and broken twins are named."""

from __future__ import annotations

import json
from pathlib import Path

import fake_coremltools
import numpy as np
import pytest
from tiny_models import write_tiny_program

from edgedec.coreml import Package
from edgedec.coreml.types import Array
from edgedec.doctor.coreml import block, sample, watched
from edgedec.doctor.coreml import check as module
from edgedec.doctor.coreml.check import check, check_program, expected
from edgedec.doctor.coreml.measure import measure
from edgedec.doctor.coreml.records import CoremlCheck, DeviceCheck, ProgramCheck
from edgedec.errors import EdgedecError
from edgedec.runtimes.coreml import devices
from edgedec.runtimes.coreml.compiled import CompiledProgram

FORMS = ("slice", "blend")
PLACES = ("cpu", "gpu", "ane")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "_SECONDS", 0)


@pytest.fixture(scope="module", params=FORMS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    write_tiny_program(place, request.param)
    return place / "model.mlpackage"


@pytest.fixture(scope="module")
def slices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("slice")
    write_tiny_program(place, "slice")
    return place / "model.mlpackage"


def checked(folder: Path, *faults: str, device: str = "gpu") -> tuple[ProgramCheck, DeviceCheck]:
    tools = fake_coremltools.tools(*faults)
    found = check_program(
        "tiny", folder, [device], lambda *step: None,
        lambda path, place, wanted: measure(path, place, wanted, tools),
    )  # fmt: skip
    return found, found.devices[0]


def failed(folder: Path, *faults: str) -> set[str]:
    """The steps and functions that failed, and ``problem`` where the device did."""
    program, device = checked(folder, *faults)
    names = {step.name for step in device.steps if not program.passes(step)}
    names |= {function.name for function in device.functions if function.problem}
    return names | ({"problem"} if device.problem else set())


def test_a_sound_device_passes(folder: Path) -> None:
    program, device = checked(folder)
    assert program.failures() == []
    # The double rounds as the interpreter does: nothing is beyond the rounding that was measured.
    assert all(step.difference <= 1.5 * program.rounding for step in device.steps)
    assert 0 < program.rounding < 0.05
    assert device.unsorted == 0
    assert device.ties_by_id == device.ties
    names = {function.name for function in device.functions}
    assert names == set(Package.open(folder).names)
    for function in device.functions:
        assert function.calls >= 3
        assert function.pass_s > 0
        assert function.load_s > 0


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ("rows turned", {"logits_16"}),
        ("wrong ids", {"top_8"}),
        ("overflow", {"logits_4", "rollback"}),  # a chain of two is computed by it, too
        ("not written", {"fork"}),
        ("not loaded", {"logits_8", "branch"}),  # a branch of five is computed by it, too
        ("not computed", {"top_4"}),
        ("no plan", {"problem"}),
        ("no program", {"problem"}),
    ],
)
def test_what_is_broken_is_named(folder: Path, fault: str, names: set[str]) -> None:
    found = failed(folder, fault)
    assert found == names


def test_rows_that_are_not_sorted_are_counted(slices: Path) -> None:
    # The session orders them itself, so that every number passes.
    program, device = checked(slices, "unsorted")
    assert program.failures() == []
    assert device.unsorted == 1 + 4 + 8 + 16
    assert f"{device.unsorted} rows not sorted" in block(CoremlCheck((), None, (program,)))


def test_states_that_functions_do_not_share(folder: Path) -> None:
    # The prompt is read into another state: every number is wrong.
    program, device = checked(folder, "apart")
    assert {step.name for step in device.steps if not program.passes(step)} == {
        step.name for step in device.steps
    }


def test_numbers_that_are_all_a_little_wrong(folder: Path) -> None:
    found = failed(folder, "noise")
    assert {"logits_1", "logits_4", "logits_8", "logits_16", "branch", "fork"} <= found
    assert "top_4" not in found


def test_a_branch_that_is_not_moved(slices: Path) -> None:
    assert failed(slices, "no move") == {"branch"}


def test_a_program_that_is_not_compiled(slices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact, _ = expected(Package.open(slices))
    with pytest.raises(EdgedecError, match="CoreML does not compile it"):
        measure(slices, "gpu", exact, fake_coremltools.tools("not compiled"))


def test_it_is_compiled_once_for_all_functions(slices: Path) -> None:
    tools = fake_coremltools.tools()
    exact, _ = expected(Package.open(slices))
    measure(slices, "ane", exact, tools)
    assert tools.calls["compile"] == tools.calls["plan"] == 1
    assert {count for name, count in tools.calls.items() if name.startswith("load")} == {1}


def test_what_was_compiled_is_removed(slices: Path) -> None:
    program = CompiledProgram(slices, fake_coremltools.tools())
    kept = Path(program._path)
    assert kept.is_dir()
    program.close()
    assert not kept.parent.exists()


@pytest.mark.parametrize(("device", "unit"), [("cpu", "cpu"), ("gpu", "gpu"), ("ane", "ane")])
def test_the_plan_says_where_operations_run(slices: Path, device: str, unit: str) -> None:
    program = CompiledProgram(slices, fake_coremltools.tools())
    found = program.placements(device)
    program.close()
    assert set(found) == set(Package.open(slices).names)
    operations = [
        each.type
        for each in Package.open(slices).function("top_4").operations
        if not each.type.startswith("const")
    ]
    placed = found["top_4"]
    assert sum(placed.operations.values()) == len(operations)
    assert placed.operations["unknown"] == operations.count("read_state")
    if unit != "cpu":
        assert placed.operations["cpu"] == operations.count("gather")
    assert sum(placed.cost.values()) == pytest.approx(1)
    assert f"{unit} {placed.operations[unit]} of {len(operations)}" in str(placed)
    assert "% of the cost" in str(placed)


# -- the whole check ----------------------------------------------------------------------------


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing", lambda: None)
    tools = fake_coremltools.tools("not loaded")
    monkeypatch.setattr(
        module, "in_child", lambda path, place, wanted: measure(path, place, wanted, tools)
    )


@pytest.mark.usefixtures("on_a_mac")
def test_the_block_of_a_mac(slices: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    found = check({"target": slices}, lambda *step: steps.append(step))
    assert [device.device for device in found.programs[0].devices] == list(PLACES)
    assert [done for _, done, _ in steps] == [0, 1, 2, 3, 4]
    shown = block(found)
    assert shown.startswith("```\nedgedec doctor --coreml\n")
    assert shown.endswith("\n```")
    assert "needs a Mac" not in shown
    for word in ("compiled in", "load s", "ms a call", "placement", "target", "slice form"):
        assert word in shown, word
    assert "result: 9 failed" in shown
    assert "target on ane, logits_8: " in shown
    assert "CoreML does not load logits_8 on ane: Error -14" in shown
    assert str(slices) not in shown


def test_the_block_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.platform, "system", lambda: "Linux")
    found = check({"target": folder}, lambda *step: None)
    assert found.failures() == []
    shown = block(found)
    assert "CoreML computes on macOS only; the interpreter computed instead" in shown
    assert "that functions share one state there" in shown
    assert "result: all passed" in shown
    assert "ms a call" not in shown


def test_a_device_that_crashes_harms_no_other(
    slices: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = (
        "import os",
        "from edgedec._support import _sandbox_child",
        "def main(task):",
        "    os.abort() if task['device'] == 'ane' else None",
        "    from edgedec.doctor.coreml import measure",
        "    return measure.main({**task, 'device': 'reference'})",
        "_sandbox_child.serve(main)",
    )
    (tmp_path / "some_mac.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "_CHILD", "some_mac")
    monkeypatch.setattr(module, "missing", lambda: None)
    found = check({"target": slices}, lambda *step: None)
    cpu, gpu, ane = found.programs[0].devices
    assert cpu.problem is gpu.problem is None
    assert "SIGABRT" in str(ane.problem)
    assert found.failures() == [f"target on ane: {ane.problem}"]


def test_records_survive_the_child(slices: Path) -> None:
    exact, _ = expected(Package.open(slices))
    found = module.in_child(slices, "reference", exact)
    assert isinstance(found, DeviceCheck)
    here = measure(slices, "reference", exact)
    assert [step.difference for step in found.steps] == pytest.approx(
        [step.difference for step in here.steps], rel=1e-3
    )


@pytest.mark.parametrize("context", [16, 24, 40])
def test_short_contexts(tmp_path: Path, context: int) -> None:
    write_tiny_program(tmp_path, "slice", max_position_embeddings=context)
    program, device = checked(tmp_path / "model.mlpackage")
    assert [step for step in device.steps if not program.passes(step)] == []


def test_expected_numbers_are_the_references(folder: Path) -> None:
    """Not only the interpreter's own: another rounding is seen, and a fault in the file is not.

    The check compares CoreML with the file; that the file is right is what the export checks.
    """
    exact, rounding = expected(Package.open(folder))
    assert set(exact) == {"logits_1", "logits_4", "logits_8", "logits_16",
                          "branch", "fork", "rollback"}  # fmt: skip
    for logits in exact.values():
        assert isinstance(logits, Array.__origin__)
        assert np.isfinite(logits).all()
    # One row after the same text, by functions of two widths and by a copy of the session.
    np.testing.assert_allclose(exact["logits_1"][0], exact["logits_16"][0], atol=1e-4)
    np.testing.assert_allclose(exact["logits_1"][0], exact["fork"][0], atol=1e-4)
    assert np.abs(exact["rollback"][0] - exact["logits_1"][0]).max() > 0.1
    assert rounding > 0


def test_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"vocab_size": 128, "hidden_size": 128, "intermediate_size": 128,
             "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 64}  # fmt: skip
    monkeypatch.setattr(sample, "_CONFIG", {**sample._CONFIG, **small})
    found = sample.write_samples(tmp_path)
    assert list(found) == ["sample slice int4", "sample blend int4", "sample blend lut4"]
    for path in found.values():
        Package.open(path).check()


def test_the_report_is_json(slices: Path) -> None:
    from edgedec._support.fields import to_json

    program, _ = checked(slices, "overflow")
    json.dumps(to_json(CoremlCheck((), None, (program,))), allow_nan=False)
