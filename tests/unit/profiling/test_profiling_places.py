"""Which places are measured, and which are left out."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.clusters import Cluster
from edgedec.hardware.device import Device
from edgedec.hardware.machine import Memory
from edgedec.loading.sources import Source
from edgedec.profiling import places
from edgedec.profiling.places import PlaceFilter
from edgedec.records.place import Place

TWO = [Cluster((0, 1), (0, 1), None, None, "all")]
PHONE = [
    Cluster((4, 5, 6, 7), (4, 5, 6, 7), 2800.0, 1024, "big"),
    Cluster((0, 1, 2, 3), (0, 1, 2, 3), 1800.0, 400, "little"),
]


def source(role: str, format: str) -> Source:
    return Source(role, format, Path(f"{role}.{format}"), {}, lambda: None, lambda: None)


class Adapter:
    def __init__(self, *devices: Device) -> None:
        self._devices = list(devices)

    def devices(self) -> list[Device]:
        return [Device("x", "cpu", "cpu", "processor"), *self._devices]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch):
    """A machine with these clusters and adapters by runtime."""

    def set_up(clusters: list[Cluster], **adapters: Adapter) -> None:
        def adapter(name: str) -> Adapter:
            if name not in adapters:
                raise RuntimeUnavailable(f"the runtime {name!r} needs a package")
            return adapters[name]

        monkeypatch.setattr(places, "clusters", lambda: clusters)
        monkeypatch.setattr(places.registry, "adapter", adapter)
        monkeypatch.setattr(places.os, "sched_setaffinity", None, raising=False)

    return set_up


def labels(found: list[places.Placed], role: str) -> list[str]:
    return [placed.place.label for placed in found if placed.source.role == role]


def test_two_cores_are_one_place_or_two_and_each_model_has_its_own(here) -> None:
    here(TWO, onnx=Adapter())
    pair = {"target": [source("target", "onnx")], "draft": [source("draft", "onnx")]}
    found, left_out = places.sites(pair, PlaceFilter())
    assert labels(found, "target") == ["onnx cpu x1", "onnx cpu x2", "onnx cpu:0 x1"]
    assert labels(found, "draft") == ["onnx cpu x1", "onnx cpu x2", "onnx cpu:1 x1"]
    assert left_out == ["2 more places on the processor: --thorough measures them"]
    _, left_out = places.sites({"target": pair["target"]}, PlaceFilter(labels=("cpu:1",)))
    assert left_out == ["1 more place on the processor: --thorough measures them"]
    more, left_out = places.sites(pair, PlaceFilter(thorough=True))
    assert len(more) == len(found) + 2
    assert not left_out
    apart = [t.place.apart_from(d.place) for t in found[:3] for d in found[3:]]
    assert sum(apart) == 1


def test_clusters_are_places(here) -> None:
    here(PHONE, onnx=Adapter())
    found, _ = places.sites({"target": [source("target", "onnx")]}, PlaceFilter())
    cores = [placed.place.cores for placed in found if placed.place.cores]
    assert cores == [(4, 5, 6, 7, 0, 1, 2), (4, 5, 6, 7)]
    assert [placed.place.threads for placed in found if not placed.place.cores] == [1, 4, 8]
    few = len(found)
    found, _ = places.sites({"target": [source("target", "onnx")]}, PlaceFilter(thorough=True))
    assert len(found) > few
    assert {(0, 1, 2, 3), (3,)} <= {placed.place.cores for placed in found}


def test_devices_are_places_and_a_runtime_that_is_not_there_is_said(here) -> None:
    vulkan = Device("llamacpp", "Vulkan0", "gpu", "some")
    vino = Device("onnx", "NPU", "npu", "some", provider="OpenVINOExecutionProvider")
    here(TWO, onnx=Adapter(vino), llamacpp=Adapter(vulkan))
    formats = [source("target", name) for name in ("onnx", "gguf", "optimum")]
    found, left_out = places.sites({"target": formats}, PlaceFilter())
    assert Place("gguf", "Vulkan0") in [placed.place for placed in found]
    assert Place("onnx", "NPU", provider="OpenVINOExecutionProvider") in [s.place for s in found]
    assert left_out[0] == "target as optimum: the runtime 'onnx-hub' needs a package"


def test_a_provider_on_the_processor_is_no_device_of_its_own(here) -> None:
    vino = Device("onnx", "openvino:cpu", "cpu", "some", provider="OpenVINOExecutionProvider")
    here(TWO, onnx=Adapter(vino))
    pair = {"target": [source("target", "onnx")], "draft": [source("draft", "onnx")]}
    found, _ = places.sites(pair, PlaceFilter())
    places_of_it = [placed.place for placed in found if placed.place.provider]
    assert places_of_it == [Place("onnx", threads=2, provider="OpenVINOExecutionProvider")] * 2
    assert not any(places_of_it[0].apart_from(placed.place) for placed in found)


def test_the_user_restricts(here) -> None:
    here(TWO, onnx=Adapter(), llamacpp=Adapter())
    pair = {"target": [source("target", "onnx"), source("target", "gguf")]}
    found, _ = places.sites(pair, PlaceFilter(formats=("gguf",), threads=(2,)))
    assert labels(found, "target") == ["gguf cpu x2"]
    found, _ = places.sites(pair, PlaceFilter(labels=("cpu:0",)))
    assert labels(found, "target") == ["onnx cpu:0 x1", "gguf cpu:0 x1"]


def test_one_core_is_not_split() -> None:
    assert places.splits([Cluster((3,), (3,), None, None, "all")]) == []
    assert places.thread_counts(1, thorough=True) == [1]
    assert places.thread_counts(12, thorough=False) == [1, 6, 12]
    assert places.thread_counts(12, thorough=True) == [1, 2, 4, 6, 8, 12]


def test_servers_are_one_place_of_the_target(here, monkeypatch: pytest.MonkeyPatch) -> None:
    here(TWO, onnx=Adapter(), llamacpp=Adapter())
    asked: list[str] = []
    monkeypatch.setattr(places.registry, "remote_devices", asked.append)
    pair = {
        "target": [source("target", "gguf"), source("target", "onnx")],
        "draft": [source("draft", "gguf")],
    }
    wanted = PlaceFilter(rpc="10.0.0.2:1,10.0.0.3:1", threads=(1,))
    found, _ = places.sites(pair, wanted)
    assert labels(found, "target") == [
        "gguf cpu x1", "gguf rpc:10.0.0.2:1,10.0.0.3:1", "onnx cpu x1",
    ]  # fmt: skip
    assert labels(found, "draft") == ["gguf cpu x1"]
    assert asked == ["10.0.0.2:1,10.0.0.3:1"]
    assert places.sites(pair, PlaceFilter(threads=(1,)))[0] != found


def test_a_target_that_does_not_fit_here_is_measured_on_servers_only(
    here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here(TWO, llamacpp=Adapter())
    monkeypatch.setattr(places.registry, "remote_devices", lambda rpc: [])
    monkeypatch.setattr(places, "memory", lambda: Memory(1000, 1000, None))
    (large := tmp_path / "large.gguf").write_bytes(bytes(1001))
    target = replace(source("target", "gguf"), files={"large.gguf": large})
    found, left_out = places.sites({"target": [target]}, PlaceFilter(rpc="10.0.0.2:1"))
    assert labels(found, "target") == ["gguf rpc:10.0.0.2:1"]
    assert any("target on this machine: it takes" in line for line in left_out)
    large.write_bytes(bytes(999))  # the control
    found, _ = places.sites({"target": [target]}, PlaceFilter(rpc="10.0.0.2:1"))
    assert len(found) > 1
