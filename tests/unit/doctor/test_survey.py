"""All devices at once: none of them keeps the others from being listed."""

import os
import threading
import types
from typing import Any

import pytest

from edgedec.doctor import survey as module
from edgedec.doctor.survey import survey
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.clusters import Cluster
from edgedec.hardware.device import Device, Speed
from edgedec.runtimes import registry

CPU = Device("fake", "cpu", "cpu", "a processor")
CARD = Device("fake", "card", "gpu", "a card", None, 100, 50)


def adapters(monkeypatch: pytest.MonkeyPatch, **known: Any) -> None:
    monkeypatch.setattr(registry, "names", lambda: list(known))

    def adapter(name: str) -> Any:
        found = known[name]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(registry, "adapter", adapter)


def fake(devices: list[Device], measure: Any = None, problems: tuple[str, ...] = ()) -> Any:
    def listed() -> list[Device]:
        return devices

    return types.SimpleNamespace(
        devices=listed, measure=measure or (lambda *_: Speed(1.0, 2.0)), problems=lambda: problems
    )


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are measured in this process: a child would not know the fakes."""
    monkeypatch.setattr(module, "_in_child", module._here)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 9.0, 9.0), raising=False)


def test_one_that_fails_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(device: Device, threads: int) -> Speed:
        if device == CARD:
            raise OSError("the driver\nis gone")
        return Speed(1.0, 2.0)

    broken = fake([])
    broken.devices = lambda: 1 // 0
    adapters(
        monkeypatch,
        missing=RuntimeUnavailable("pip install it"),
        broken=broken,
        fake=fake([CPU, CARD], measure, ("a package does not load: no",)),
    )
    found = survey()
    assert found.problems == (
        "missing: pip install it",
        "broken: ZeroDivisionError: integer division or modulo by zero",
        "a package does not load: no",
    )
    assert [(one.device, one.speed, one.problem) for one in found.found] == [
        (CPU, Speed(1.0, 2.0), None),
        (CARD, None, "OSError: the driver"),
    ]


def test_the_same_products_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(device: Device, threads: int) -> Speed:
        asked.append(device.runtime)
        return Speed(len(asked), 0.0)

    twin = Device("twin", "cpu", "cpu", CPU.description)
    own = fake([Device("own", "cpu", "cpu", CPU.description)], lambda *_: Speed(9.0, 9.0))
    adapters(monkeypatch, fake=fake([CPU, CARD], measure), twin=fake([twin], measure), own=own)
    steps: list[tuple[str, int, int]] = []
    found = survey(on_progress=lambda *step: steps.append(step))
    assert asked == ["fake", "fake"]
    rates = {(o.device.runtime, o.device.name): o.speed for o in found.found}
    assert rates["twin", "cpu"] == rates["fake", "cpu"] == Speed(1.0, 0.0)
    assert rates["own", "cpu"] == Speed(9.0, 9.0)
    assert steps == [("fake cpu", 0, 3), ("fake card", 1, 3), ("own cpu", 2, 3), ("", 3, 3)]


def test_nothing_is_measured_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Speed:
        raise AssertionError("measured")

    adapters(monkeypatch, fake=fake([CPU, CARD], never))
    assert all(one.speed is one.problem is None for one in survey(measure=False).found)
    assert all(one.problem == "AssertionError: measured" for one in survey().found)


def test_a_busy_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    adapters(monkeypatch, fake=fake([CPU]))
    assert survey().problems == ()
    monkeypatch.setattr(module, "available_cores", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (3.21, 0.0, 0.0), raising=False)
    (said,) = survey().problems
    assert said == "other programs are busy (load 3.2 on 4 cores): the figures are too low"
    assert survey(measure=False).problems == ()
    monkeypatch.delattr(os, "getloadavg")  # not on Windows
    assert survey().problems == ()


def test_clusters_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little and big cores apart, where threads can be kept on them; else the processor once."""
    big = Cluster((4, 6), (4, 5, 6, 7), 3e3, None, "big")
    little = Cluster((0,), (0,), None, 1, "little")
    monkeypatch.setattr(module, "clusters", lambda: [big, little])
    monkeypatch.setattr(module, "available_cores", lambda: 8)
    adapters(monkeypatch, fake=fake([CPU, CARD]))
    monkeypatch.setattr(module, "can_pin", lambda: True)
    found = survey(measure=False).found
    assert [(one.cluster, one.threads) for one in found] == [(big, 2), (little, 1), (None, 0)]
    monkeypatch.setattr(module, "can_pin", lambda: False)
    (whole, card) = survey(measure=False).found
    assert whole.cluster is not None
    assert (whole.cluster.cores, whole.threads, card.cluster) == ((4, 6, 0), 3, None)
    monkeypatch.setattr(module, "available_cores", lambda: 1)  # a container's share
    assert [one.threads for one in survey(measure=False).found] == [1, 0]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be kept on cores")
def test_threads_stay_on_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = sorted(os.sched_getaffinity(0))
    last = Cluster((usable[-1],), (usable[-1],), None, None, "little")
    monkeypatch.setattr(module, "clusters", lambda: [last])
    seen: list[tuple[set[int], int]] = []

    def measure(device: Device, threads: int) -> Speed:
        def started() -> None:
            seen.append((os.sched_getaffinity(0), threads))

        thread = threading.Thread(target=started)  # as a runtime starts its own
        thread.start()
        thread.join()
        return Speed(1.0, 1.0)

    adapters(monkeypatch, fake=fake([CPU], measure))
    survey()
    assert seen == [({usable[-1]}, 1)]
    assert sorted(os.sched_getaffinity(0)) == usable
