"""All devices at once: none of them keeps the others from being listed."""

import types
from typing import Any

import pytest

from edgedec.doctor import survey as module
from edgedec.doctor.survey import survey
from edgedec.errors import RuntimeUnavailable
from edgedec.hardware.clusters import Cluster
from edgedec.hardware.device import Device
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


def fake(*devices: Device, problems: tuple[str, ...] = ()) -> Any:
    return types.SimpleNamespace(devices=lambda: [*devices], problems=lambda: problems)


def test_one_that_fails_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fake()
    broken.devices = lambda: 1 // 0
    adapters(
        monkeypatch,
        missing=RuntimeUnavailable("pip install it"),
        broken=broken,
        fake=fake(CPU, CARD, problems=("a package does not load: no",)),
    )
    found = survey()
    assert found.problems == (
        "missing: pip install it",
        "broken: ZeroDivisionError: integer division or modulo by zero",
        "a package does not load: no",
    )
    assert [one.device for one in found.found] == [CPU, CARD]


def test_bundles_are_tried_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    adapters(monkeypatch, fake=fake(CPU, CARD))
    info = types.SimpleNamespace(formats=("one", "two"))
    monkeypatch.setattr(registry, "infos", lambda: {"fake": info})
    monkeypatch.setattr(module, "refusal", lambda device: "no" if device == CARD else None)
    steps: list[tuple[str, int, int]] = []
    found = survey(on_progress=lambda *step: steps.append(step)).found
    assert [(one.takes, one.refusal) for one in found] == [(("one", "two"), None), ((), "no")]
    assert steps == [("fake cpu", 0, 2), ("fake card", 1, 2), ("", 2, 2)]
    monkeypatch.setattr(module, "refusal", lambda device: 1 // 0)
    assert [one.takes for one in survey(attempt=False).found] == [None, None]


def test_clusters_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little and big cores apart, where threads can be kept on them; else the processor once."""
    big = Cluster((4, 6), (4, 5, 6, 7), 3e3, None, "big")
    little = Cluster((0,), (0,), None, 1, "little")
    monkeypatch.setattr(module, "clusters", lambda: [big, little])
    adapters(monkeypatch, fake=fake(CPU, CARD))
    monkeypatch.setattr(module, "can_pin", lambda: True)
    assert [one.cluster for one in survey(attempt=False).found] == [big, little, None]
    monkeypatch.setattr(module, "can_pin", lambda: False)
    (whole, card) = survey(attempt=False).found
    assert whole.cluster is not None
    assert (whole.cluster.cores, card.cluster) == ((4, 6, 0), None)
