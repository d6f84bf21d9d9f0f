"""How the speed of a device is taken, whatever computes."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from edgedec.errors import RuntimeUnavailable
from edgedec.hardware import speed
from edgedec.hardware.device import Device, Speed
from edgedec.hardware.machine import Memory
from edgedec.hardware.speed import CannotCompute, Ready

CARD = Device("onnx", "card", "gpu", "", memory_free=1)


class Clock:
    """Time that passes when something runs, by rows; computes what numpy does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float]) -> None:
        self.now, self.seconds, self.asked, self.runs = 0.0, seconds, list[tuple[str, int]](), 0
        self.cannot: tuple[str, ...] = ()
        monkeypatch.setattr(speed, "perf_counter", lambda: self.now)

    @contextmanager
    def prepare(self, weights: str, count: int, rows: int) -> Iterator[Ready]:
        self.asked.append((weights, rows))
        if weights in self.cannot:
            raise CannotCompute(f"not in {weights}")

        def run() -> None:
            self.now += self.seconds[rows]
            self.runs += 1

        yield Ready(run, lambda: speed.one_row() @ speed.matrix().T, 100)

    def speed(self) -> Speed:
        self.asked.clear()
        return speed.take_speed(CARD, "its maker", self.prepare)


def test_rates_and_the_best_width(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {1: 0.5, 64: 0.01, 256: 0.02, 1024: 0.09})
    found = clock.speed()
    assert found.weights == "f16"
    assert found.bytes_per_second == pytest.approx(200)
    assert found.flops == pytest.approx(2 * 256 * speed.SIDE**2 / 0.02)
    assert clock.asked[:4] == [("f16", 1), ("f16", 64), ("f16", 256), ("f16", 1024)]
    clock.seconds[256] = 0.04
    clock.speed()
    assert ("f16", 1024) not in clock.asked, "wider ones promise no more"
    clock.seconds[64] = 5.0
    clock.speed()
    assert ("f16", 256) not in clock.asked


def test_what_a_device_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, dict.fromkeys((1, 64, 256, 1024), 0.5))
    clock.cannot = ("int4",)
    assert clock.speed().int4_flops is None
    clock.cannot = ("f16",)
    assert clock.speed().weights == "f32"
    assert clock.speed().int4_flops is not None
    clock.cannot = ("f16", "f32")
    with pytest.raises(RuntimeUnavailable) as caught:
        clock.speed()
    assert str(caught.value) == "card (its maker) cannot compute a product: not in f16"
    clock.cannot = ()
    monkeypatch.setattr(speed, "matrix", lambda: np.full((speed.SIDE, speed.SIDE), np.nan))
    with pytest.raises(RuntimeUnavailable, match="its numbers are wrong"):
        clock.speed()


def test_the_median_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {})
    lasts = iter([0.03, 0.01, 0.05, 0.02])

    def run() -> None:
        clock.now += next(lasts)

    assert speed.typical_seconds(run) == pytest.approx(0.02)


@pytest.mark.parametrize(("each", "runs"), [(5.0, 2), (1e-6, 51)])
def test_slow_devices_run_twice(each: float, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, {1: each})
    with clock.prepare("f32", 1, 1) as ready:
        assert speed.typical_seconds(ready.run) == pytest.approx(each)
    assert clock.runs == runs


def test_memory_bounds_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert speed.affordable("f32", free=10 << 30) == 8
    assert speed.affordable("f32", free=512 << 20) == 2
    assert speed.affordable("f32", free=1) == 1
    monkeypatch.setattr(speed, "memory", lambda: Memory(1 << 40, 256 << 20, 1 << 30))
    assert speed.affordable("f32", None) == 1
    monkeypatch.setattr(speed, "memory", lambda: Memory(None, None, None))
    assert speed.affordable("f32", None) == 8


def test_rows_keep_their_length() -> None:
    """Neither nothing nor overflow after many matrices."""
    row = speed.one_row()
    for _ in range(50):
        row = row @ speed.matrix().T
    assert 0.3 < np.linalg.norm(row) / speed.SIDE**0.5 < 3
