"""Loading CoreML programs: facts that are checked, and devices that are not there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import write_tiny_program

from edgedec.coreml import package_files
from edgedec.coreml.describe import describe
from edgedec.coreml.messages import Decoder, encode
from edgedec.errors import BundleError, CapacityExceeded, RuntimeUnavailable, StateError
from edgedec.records.load import LoadOptions
from edgedec.runtimes import registry
from edgedec.runtimes.coreml import devices
from edgedec.runtimes.coreml.model import CoremlModel

Change = Callable[[dict], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_program(tmp_path, "slice")
    return tmp_path / "model.mlpackage"


def with_facts(folder: Path, change: Change) -> None:
    file = package_files(folder)[0]
    model = Decoder().decode("Model", memoryview(file.read_bytes()))
    metadata = model["description"]["metadata"]["userDefined"]
    facts = json.loads(metadata["edgedec"])
    change(facts)
    metadata["edgedec"] = json.dumps(facts)
    file.write_bytes(encode("Model", model))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda facts: facts.update(graph_version=2), "program version 2, this edgedec reads 1"),
        (lambda facts: facts.update(form="cube"), "form"),
        (lambda facts: facts.update(slots=512), "the state of"),
        (lambda facts: facts.update(layers=3), "the state of"),
        (lambda facts: facts.update(rows=[1, 4, 12]), "no function"),
        (lambda facts: facts.update(rows=[4, 8]), "widths that ascend from 1"),
        (lambda facts: facts.update(rows="1"), "a list"),
        (lambda facts: facts.update(max_context=1000), "at most the 256 slots"),
        (lambda facts: facts.update(read_rows=64), "no function 'read_64'"),
        (lambda facts: facts.update(eos_ids=[-1]), "a list of counts"),
        (lambda facts: facts.update(ropes=[{"frequencies": [1]}]), "frequencies and a magnitude"),
        (lambda facts: facts.update(positions=1), "true or false"),
        (lambda facts: facts.pop("top_k"), "top_k"),
        (lambda facts: facts.update(kv_heads=1 << 40), "kv_heads"),
    ],
)
def test_facts_that_are_not_the_programs(folder: Path, change: Change, words: str) -> None:
    with_facts(folder, change)
    with pytest.raises(BundleError, match=words) as found:
        CoremlModel.load(folder, device="reference")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("device", [None, "gpu", "ane", "cpu"])
def test_a_device_that_is_not_here(
    folder: Path, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices.platform, "system", lambda: "Linux")
    with pytest.raises(RuntimeUnavailable, match="macOS only; --device reference decodes it"):
        registry.load("coreml", folder, LoadOptions(device=device))
    assert [device.name for device in devices.find_devices()] == ["reference"]


def test_what_a_mac_lacks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(devices.platform, "mac_ver", lambda: ("14.5", ("", "", ""), "arm64"))
    with pytest.raises(RuntimeUnavailable, match="needs macOS 15"):
        CoremlModel.load(folder)
    monkeypatch.setattr(devices.platform, "mac_ver", lambda: ("26.0", ("", "", ""), "arm64"))
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeUnavailable, match="needs coremltools"):
        CoremlModel.load(folder)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: object())
    names = [device.name for device in devices.find_devices()]
    assert names == ["cpu", "gpu", "ane", "reference"]
    with pytest.raises(RuntimeUnavailable, match="no device 'tpu' of CoreML"):
        CoremlModel.load(folder, device="tpu")


def test_a_context_beyond_the_cache(folder: Path) -> None:
    model = CoremlModel.load(folder, device="reference")
    with pytest.raises(CapacityExceeded, match=r"1\.\.256"):
        model.open(257)
    model.close()
    with pytest.raises(StateError, match="the model is closed"):
        model.open(8)


def test_a_package_is_described(folder: Path) -> None:
    form, functions, state = describe(folder)
    assert "GPU and CPU" in form
    assert "logits_1, logits_4, logits_8, logits_16, move_16, read_128, top_1" in functions
    assert state == "state kv float16[4, 2, 256, 16]"
