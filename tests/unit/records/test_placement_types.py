"""Places, pinned threads, the wall clock, and dataclasses that go to JSON and back."""

import json
import os
import threading
from dataclasses import dataclass

import pytest
from waiting import LIMIT_S

from edgedec._support.fields import from_json, to_json
from edgedec.errors import PlanError, ProfileError, RuntimeUnavailable
from edgedec.hardware.clock import WallClock
from edgedec.hardware.pinning import pinned
from edgedec.records.place import Place
from edgedec.records.plan import Candidate, Decision, Plan, Prediction

needs_pinning = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not keep threads on cores"
)
CPU2 = Place("onnx", threads=2)
GPU = Place("gguf", device="Vulkan0")


@needs_pinning
def test_pinned_keeps_this_thread_and_those_it_starts_and_lets_go_again():
    before = os.sched_getaffinity(0)
    one = min(before)
    with pinned([one]):
        assert os.sched_getaffinity(0) == {one}
        inherited: list[set[int]] = []
        thread = threading.Thread(target=lambda: inherited.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        assert inherited == [{one}]
    assert os.sched_getaffinity(0) == before


@needs_pinning
def test_pinned_lets_go_after_an_exception():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyError), pinned([min(before)]):
        raise KeyError
    assert os.sched_getaffinity(0) == before


@needs_pinning
@pytest.mark.parametrize("cores", [[], [10_000]])
def test_pinned_names_the_cores_there_are(cores):
    with pytest.raises(RuntimeUnavailable, match=r"expected some of \d"), pinned(cores):
        pytest.fail("pinned to cores that are not there")


@needs_pinning
def test_a_wall_clock_runs_beside_the_caller_on_the_cores_it_was_given():
    clock, found = WallClock(), []
    one = min(os.sched_getaffinity(0))
    started, go_on = clock.signal(), clock.signal()

    def run() -> None:
        started.set()
        assert go_on.wait(LIMIT_S)
        found.append(os.sched_getaffinity(0))

    task = clock.start(run, name="test", cores=[one])
    assert started.wait(LIMIT_S), "it does not run beside the caller"
    assert not found
    go_on.set()
    task.join()
    assert found == [{one}]


def test_a_signal_that_nobody_sets_times_out():
    clock = WallClock()
    before = clock.now()
    assert not clock.signal().wait(0.01)
    assert clock.now() - before >= 0.01


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (Place("onnx", cores=(0,)), Place("gguf", cores=(1,)), True),
        (Place("onnx", cores=(0, 1)), Place("gguf", cores=(1,)), False),
        (Place("onnx", cores=(0,)), CPU2, False),
        (CPU2, CPU2, False),
        (CPU2, GPU, True),
        (GPU, GPU, False),
        (GPU, Place("onnx", device="npu"), True),
    ],
)
def test_places_are_apart_when_they_share_neither_cores_nor_a_device(one, other, apart):
    assert one.apart_from(other) is other.apart_from(one) is apart


def test_a_place_says_how_to_load_a_model_there():
    place = Place("onnx", threads=1, cores=(1,), provider="CPUExecutionProvider")
    options = place.load_options(batch_invariant=True)
    assert options.threads == 1
    assert options.cores == (1,)
    assert options.providers == ("CPUExecutionProvider",)
    assert options.device is None
    assert options.batch_invariant
    assert GPU.load_options().device == "Vulkan0"
    assert GPU.load_options().threads is None


def decision() -> Decision:
    plan = Plan(CPU2, Place("gguf", threads=1, cores=(1,)), "model", None, None, "overlapped")
    candidate = Candidate(plan, Prediction(100.0, 0.5, 1 << 20, 2.5))
    plain = Plan(CPU2)
    return Decision(
        1,
        {"cpu": "x"},
        "ab",
        {"onnxruntime": "1"},
        None,
        512,
        candidate,
        (plain,),
        (candidate,),
        ("It is faster.",),
    )


def test_a_decision_survives_json():
    stored = json.loads(json.dumps(to_json(decision())))
    assert from_json(Decision, stored, "plan.json", PlanError) == decision()


def broken(path: str, value: object) -> dict[str, object]:
    stored = json.loads(json.dumps(to_json(decision())))
    inner, *names = stored, *path.split(".")
    for name in names[:-1]:
        inner = inner[int(name)] if isinstance(inner, list) else inner[name]
    last = names[-1]
    inner[int(last) if isinstance(inner, list) else last] = value
    return stored


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", "1"),
        ("schema", True),
        ("chosen", []),
        ("chosen.prediction.ttft_s", float("nan")),
        ("chosen.prediction.peak_bytes", 1.5),
        ("chosen.plan.target.cores", "0,1"),
        ("chosen.plan.target.threads", None),
        ("fallbacks.0.drafter", 3),
        ("machine", []),
        ("machine.cpu", 1),
        ("reasons", "It is faster."),
        ("unknown", 1),
    ],
)
def test_a_damaged_decision_is_refused_in_one_line(path, value):
    with pytest.raises(PlanError, match="expected") as caught:
        from_json(Decision, broken(path, value), "plan.json", PlanError)
    assert str(caught.value).startswith("plan.json")


def test_a_missing_field_is_refused():
    stored = to_json(decision())
    del stored["bundle"]
    with pytest.raises(ProfileError, match="bundle"):
        from_json(Decision, stored, "x", ProfileError)


@dataclass(frozen=True)
class Pairs:
    """Tuples of a fixed length."""

    pair: tuple[int, float]


def test_tuples_have_their_length():
    assert from_json(Pairs, {"pair": [1, 2]}, "x", PlanError) == Pairs((1, 2.0))
    with pytest.raises(PlanError, match="a list of 2"):
        from_json(Pairs, {"pair": [1]}, "x", PlanError)
