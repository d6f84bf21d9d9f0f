"""Loading CoreML programs: facts that are checked, and devices that are not there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import write_tiny_program

from edgedec.coreml import package_files
from edgedec.coreml.describe import describe
from edgedec.coreml.schema import MESSAGES
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
    model = MESSAGES.decode("Model", memoryview(file.read_bytes()))
    metadata = model["description"]["metadata"]["userDefined"]
    facts = json.loads(metadata["edgedec"])
    change(facts)
    metadata["edgedec"] = json.dumps(facts)
    file.write_bytes(MESSAGES.encode("Model", model))


def with_rope(**changed: object) -> Change:
    return lambda facts: facts["ropes"][0].update(changed)


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
        (lambda facts: facts.update(windows=[]), "the inputs of"),
        (
            lambda facts: facts.update(windows=[0, 7]),
            r"the inputs of.*bias_7 float16\[1, 128, 256\]",
        ),
        (lambda facts: facts.update(form="blend"), "the inputs of"),
        (
            lambda facts: facts.update(vocab_size=100000),
            r"the outputs of.*logits float16\[1, 100000",
        ),
        (lambda facts: facts.update(top_k=4), "the outputs of"),
        (with_rope(frequencies=[10**400]), "frequencies and a magnitude"),
        (with_rope(magnitude=10**400), "frequencies and a magnitude"),
        (with_rope(magnitude=True), "frequencies and a magnitude"),
    ],
)
def test_facts_that_are_not_the_programs(folder: Path, change: Change, words: str) -> None:
    with_facts(folder, change)
    with pytest.raises(BundleError, match=words):
        CoremlModel.load(folder, device="reference")


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(form="slice"),
        lambda facts: facts.update(ropes=[]),
        lambda facts: facts["ropes"][0]["frequencies"].append(1.0),
        lambda facts: facts.update(positions=True),
    ],
)
def test_facts_that_are_not_those_of_a_blend(tmp_path: Path, change: Change) -> None:
    write_tiny_program(tmp_path, "blend")
    folder = tmp_path / "model.mlpackage"
    CoremlModel.load(folder, device="reference").close()
    with_facts(folder, change)
    with pytest.raises(BundleError, match=r"the inputs of|no function 'move_16'"):
        CoremlModel.load(folder, device="reference")


def test_a_move_of_other_rows(folder: Path) -> None:
    file = package_files(folder)[0]
    model = MESSAGES.decode("Model", memoryview(file.read_bytes()))
    functions = model["mlProgram"]["functions"]
    functions["move_16"] = functions["read_128"]
    file.write_bytes(MESSAGES.encode("Model", model))
    with pytest.raises(BundleError, match=r"the inputs of move_16 are .*its facts say .*source"):
        CoremlModel.load(folder, device="reference")


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
