"""``doctor --coreml`` and ``devices MODEL``: what is shown on a Mac, and elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fake_coremltools
import pytest
import tiny_bundles
from tiny_checkpoints import noisy_checkpoint

from edgedec.doctor.coreml import check, measure, plans, sample, watched
from edgedec.export import ExportOptions
from edgedec.runtimes.coreml import devices

SMALL = {"vocab_size": 128, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 1,
         "num_attention_heads": 2, "head_dim": 64}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with a target and a draft in CoreML."""
    folder = tmp_path_factory.mktemp("coreml")
    source = noisy_checkpoint(folder / "source", noise=0, context=256)
    options = ExportOptions(
        source, folder / "bundle", source, formats=("coreml",), weights="fp16", parity=False
    )
    return tiny_bundles.kept(options)


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of coremltools, in this process."""
    monkeypatch.setattr(watched, "_SECONDS", 0)
    for module in (check, plans):
        monkeypatch.setattr(module, "missing", lambda: None)
    tools = fake_coremltools.tools()
    monkeypatch.setattr(
        check, "in_child", lambda path, device, wanted: measure.measure(path, device, wanted, tools)
    )
    monkeypatch.setattr(
        plans, "_in_child", lambda name, path: plans.read_placements(name, path, tools)
    )


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.platform, "system", lambda: "Linux")


@pytest.mark.usefixtures("elsewhere")
def test_a_bundle_is_checked_anywhere(run, programs: Path) -> None:
    found = run("doctor", "--coreml", programs)
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("```\nedgedec doctor --coreml\n")
    assert "needs a Mac:" in found.stdout
    assert "result: all passed" in found.stdout
    assert "target (" in found.stdout
    assert "draft (" in found.stdout


@pytest.mark.usefixtures("mac")
def test_a_bundle_is_checked_on_a_mac(run, programs: Path) -> None:
    found = json.loads(run("doctor", "--coreml", programs, "--json").stdout)
    assert found["failures"] == []
    assert found["missing"] is None
    assert [program["name"] for program in found["programs"]] == ["target", "draft"]
    for program in found["programs"]:
        assert [one["device"] for one in program["devices"]] == ["cpu", "gpu", "ane"]
        for one in program["devices"]:
            placements = [function["placement"]["operations"] for function in one["functions"]]
            assert all(place[one["device"]] > 0 for place in placements)


@pytest.mark.usefixtures("elsewhere")
def test_samples_are_checked_without_a_bundle(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_CONFIG", {**sample._CONFIG, **SMALL})
    found = run("doctor", "--coreml")
    assert found.exit_code == 0, found.output
    for form, weights in sample.SAMPLES:
        assert f"sample {form} {weights} (" in found.stdout


@pytest.mark.usefixtures("elsewhere")
def test_a_step_that_fails_is_an_exit_code(
    run, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_FLOOR", -1.0)
    found = run("doctor", "--coreml", programs)
    assert found.exit_code == 1
    assert "of the logits' spread, limit" in found.stdout
    assert "all passed" not in found.stdout


@pytest.mark.usefixtures("elsewhere")
def test_devices_say_that_placement_is_not_known(run, programs: Path) -> None:
    shown = run("devices", programs, "--no-try").stdout
    unknown = "where its functions would run is not known here: CoreML computes on macOS only"
    assert f"target  {unknown}" in shown
    assert f"draft   {unknown}" in shown
    found = json.loads(run("devices", programs, "--no-try", "--json").stdout)
    assert [each["devices"] for each in found["coreml"]] == [{}, {}]
    assert "coreml" not in json.loads(run("devices", "--no-try", "--json").stdout)


@pytest.mark.usefixtures("mac")
def test_devices_show_the_plan_of_a_mac(run, programs: Path) -> None:
    shown = run("devices", programs, "--no-try").stdout
    assert "target on gpu" in shown
    assert "draft on ane" in shown
    assert "top_1" in shown
    assert "% of the cost" in shown


def test_a_package_with_a_file_that_the_bundle_does_not_list(
    run, programs: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(programs, tmp_path / "other"))
    manifest = json.loads((other / "manifest.json").read_text("utf-8"))
    files = manifest["roles"]["target"]["variants"]["coreml"]["files"]
    files.remove(next(name for name in files if name.endswith("weight.bin")))
    (other / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    found = run("doctor", "--coreml", other)
    assert found.exit_code == 2
    assert "weight.bin: the manifest does not list it" in found.stderr
