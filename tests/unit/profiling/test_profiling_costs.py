"""What is no pass: launching, a round's own work, and what two models take from each other."""

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgedec.decoding.session import Pass
from edgedec.profiling import _pair_child, rounds
from edgedec.profiling.job import MeasurementJob, Together
from edgedec.profiling.launch import with_launch
from edgedec.records.place import Place
from edgedec.records.profile import Measured, Parity, PassTimes
from edgedec.testing import FakeModel

LAUNCH_S, BYTE_S = 2e-4, 1e-10


def measured(role: str, weight_bytes: int, place: Place, one_s: float | None = None) -> Measured:
    one = LAUNCH_S + weight_bytes * BYTE_S if one_s is None else one_s
    times = (PassTimes(32, (1, 2), (one, one * 1.25), (0.0, 0.0)),)
    return Measured(
        role, role, place, times, 1e-4, 0.0, 0.0, 0.1, 1, weight_bytes, 1, 512, 64, None, True,
        Parity(1.0, 0.0, True), True,
    )  # fmt: skip


def test_launching_is_what_no_weights_would_take() -> None:
    place, other = Place("onnx", threads=2), Place("onnx", threads=1)
    found = with_launch([
        measured("target", 9_000_000, place),
        measured("target", 9_000_000, other, 0.5),
        measured("draft", 3_000_000, place),
    ])  # fmt: skip
    assert found[0].launch_s == pytest.approx(LAUNCH_S)
    assert found[2].launch_s == pytest.approx(LAUNCH_S)
    # Nothing like it is known of the draft: one row less the step to the second.
    assert found[1].launch_s == pytest.approx(0.5 * 0.75)


def test_launching_is_never_negative_nor_longer_than_a_pass() -> None:
    place = Place("onnx", threads=2)
    steep = with_launch([measured("target", 100, place, 0.9), measured("draft", 90, place, 0.1)])
    assert [one.launch_s for one in steep] == [0.0, 0.0]
    falling = with_launch([measured("target", 100, place, 0.1), measured("draft", 90, place, 0.5)])
    assert all(one.launch_s <= 0.1 for one in falling)


class Core:
    """What passes take turns on: as many as there are, each takes so many times as long."""

    def __init__(self) -> None:
        self._lock, self.passes = threading.Lock(), 0

    @contextmanager
    def taken(self):
        with self._lock:
            self.passes += 1
        try:
            yield self
        finally:
            with self._lock:
                self.passes -= 1


class Slow:
    """A session whose passes wait, longer where another one uses its core."""

    def __init__(self, seconds: float, core: Core | None = None) -> None:
        self._session = FakeModel(vocab_size=8, seed=3, context=2).open(512)
        self._seconds, self._core = seconds, core or Core()

    def __getattr__(self, name: str):
        return getattr(self._session, name)

    def forward(self, *args, **more) -> Pass:
        with self._core.taken() as core:
            time.sleep(self._seconds * core.passes)
        return self._session.forward(*args, **more)


def test_a_round_beside_its_passes() -> None:
    pass_s = 0.02
    plain, drafted = rounds.overheads(Slow(pass_s), Slow(pass_s), None, [1, 2], 8)
    # Passes, of which a round of four drafted tokens has five, do not count.
    assert 0 < plain < pass_s / 2
    assert 0 <= drafted < pass_s / 4
    alone, none = rounds.overheads(Slow(0.0), None, None, [1, 2], 8)
    assert alone > 0
    assert none == 0


@pytest.mark.parametrize("shared", [True, False])
def test_two_models_at_once(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    core = Core()
    sessions = {name: Slow(0.004, core if shared else None) for name in ("target", "draft")}

    class Opened:
        def __init__(self, session: Slow) -> None:
            self.session = session

    @contextmanager
    def opened(path: Path, *more: object):
        yield Opened(sessions[path.name])

    monkeypatch.setattr(_pair_child, "opened", opened)
    monkeypatch.setattr(_pair_child, "_TURN_S", 0.1)
    jobs = [
        MeasurementJob(role, role, Place("onnx", role, 1), (1, 2, 3), (32,), (1,), 0.1)
        for role in ("target", "draft")
    ]
    found = _pair_child.measure(Together(*jobs))
    assert (found.target, found.draft) == ("onnx target x1", "onnx draft x1")
    if shared:
        assert found.target_factor + found.draft_factor > 2.6
    else:
        assert found.target_factor + found.draft_factor < 2.6


def test_a_model_that_fails_while_both_compute_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgedec.errors import ProfileError

    class Looper:
        def __init__(self, fails: bool) -> None:
            self._fails = fails

        def run(self, go_on):
            if self._fails:
                raise ProfileError("gone")
            while go_on():
                time.sleep(0.001)
            return [0.1]

    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    with pytest.raises(ProfileError, match="at once"):
        _pair_child._both(Looper(False), Looper(True))
