"""What is no pass: launching, a round's own work, and what two models take from each other."""

import threading
import time
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from edgedec.decoding.drafting.model import ModelDrafter
from edgedec.decoding.sampling import Sampler
from edgedec.decoding.session import Pass, Session, Want
from edgedec.decoding.tree import TokenTree
from edgedec.overlap.clock import WallClock
from edgedec.profiling import _pair_child, rounds
from edgedec.profiling.children import MeasurementJob, Together
from edgedec.profiling.measuring import with_launch
from edgedec.records.place import Place
from edgedec.records.profile import Measured, Parity, PassTimes
from edgedec.replay.virtual_clock import VirtualClock
from edgedec.testing import FakeModel, PacedModel

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


TARGET = FakeModel(vocab_size=8, seed=3, context=2)


def test_a_round_beside_its_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, loop_s, drafting_s = VirtualClock(), 3e-3, 8e-3

    def slow(owner: type, name: str, seconds: float) -> None:
        honest = getattr(owner, name)

        def later(*more: Any) -> Any:
            clock.sleep(seconds)
            return honest(*more)

        monkeypatch.setattr(owner, name, later)

    def overheads(pass_s: float, *, draft: bool) -> tuple[float, float]:
        model = PacedModel(TARGET, lambda rows, context: pass_s, clock)
        other = model.open(512) if draft else None
        return rounds.overheads(model.open(512), other, None, [1, 2], 8, clock.now)

    slow(Sampler, "push", loop_s)
    slow(ModelDrafter, "propose", drafting_s)
    # Passes, of which a round of four drafted tokens has five, do not count.
    assert overheads(0.02, draft=True) == pytest.approx((loop_s, drafting_s / 4))
    assert overheads(0.02, draft=False) == pytest.approx((loop_s, 0))
    assert overheads(0.0, draft=True) == pytest.approx((loop_s, drafting_s / 4))


@pytest.mark.parametrize("shared", [True, False])
def test_two_models_at_once(monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Passes that share a core take as many times as long as there are of them."""
    clock, running = VirtualClock(), Counter[str]()

    def session(core: str) -> Session:
        found = TARGET.open(512)
        honest = found.forward

        def forward(tree: TokenTree, start: int = 0, want: Want = Want.LOGITS) -> Pass:
            running[core] += 1
            clock.sleep(0.004 * running[core])
            running[core] -= 1
            return honest(tree, start, want)

        found.forward = forward
        return found

    sessions = {role: session("both" if shared else role) for role in ("target", "draft")}
    monkeypatch.setattr(
        _pair_child,
        "opened",
        lambda path, *more: nullcontext(SimpleNamespace(session=sessions[path.name])),
    )
    jobs = [
        MeasurementJob(role, role, Place("onnx", role, 1), (1, 2, 3), (32,), (1,), 0.1)
        for role in sessions
    ]
    with clock:
        found = _pair_child.measure(Together(*jobs), clock)
    assert (found.target, found.draft) == ("onnx target x1", "onnx draft x1")
    factor = 2.0 if shared else 1.0
    assert (found.target_factor, found.draft_factor) == pytest.approx((factor, factor))


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
        _pair_child._both(Looper(False), Looper(True), WallClock())
