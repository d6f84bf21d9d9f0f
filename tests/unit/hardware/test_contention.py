"""Whether a busy machine is noticed, before a runtime is loaded and while a text is decoded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgedec.cli import _figures
from edgedec.decoding.metrics import Metrics
from edgedec.hardware import contention
from edgedec.hardware.contention import least_share, longest_wait, waiting_times
from edgedec.pipeline import GenerateOptions, Pipeline
from tests.virtual_time import VirtualClock

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


def test_threads_that_outnumber_the_cores_get_less_than_a_core() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert least_share(4 * (cores or 1), 0.05) < 0.8
    assert 0 < least_share(1, 0.01) <= 1


def test_the_threshold_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def share(threads: int, seconds: float) -> float:
        asked.append(threads)
        return shares.pop()

    shares = [0.97, 0.4]
    monkeypatch.setattr(contention, "least_share", share)
    monkeypatch.setattr(contention, "available_cores", lambda: 6)
    assert [contention.machine_is_busy(), contention.machine_is_busy()] == [True, False]
    assert asked == [6, 6]


def test_the_longest_wait_is_that_of_one_thread() -> None:
    before = {"1": 1.0, "2": 5.0}
    assert longest_wait(before, {"1": 1.5, "2": 5.1, "3": 0.2}) == pytest.approx(0.5)
    assert longest_wait({}, {"1": 1.5}) is None
    assert longest_wait(before, {}) is None


def test_where_the_system_does_not_count_nothing_is_known(tmp_path: Path) -> None:
    assert waiting_times(tmp_path / "missing") == {}
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("12 3000000000 9\n")
    assert waiting_times(tmp_path) == {"7": 3.0}
    (tmp_path / "7" / "schedstat").write_text("what\n")
    assert waiting_times(tmp_path) == {}


def test_a_thread_that_just_ended_hides_no_other(tmp_path: Path) -> None:
    for number in range(8):  # whatever the order in which they are listed
        (tmp_path / str(number)).mkdir()
        if number != 4:
            (tmp_path / str(number) / "schedstat").write_text("1 2000000000 3\n")
    assert waiting_times(tmp_path) == {str(n): 2.0 for n in range(8) if n != 4}


@linux
def test_a_decoded_text_says_how_long_it_waited() -> None:
    with Pipeline.open("demo", plan="none") as pipeline:
        metrics = pipeline.generate("def f", GenerateOptions(max_new_tokens=6)).metrics
    assert metrics.waited_s is not None
    assert metrics.slowdown is not None


def test_a_slow_reader_makes_no_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits a fifth of the time does so while the reader works as well."""
    clock = VirtualClock()
    monkeypatch.setattr("edgedec.pipeline.decoder.perf_counter", clock.now)
    monkeypatch.setattr("edgedec.pipeline.decoder.waiting_times", lambda: {"1": clock.now() / 5})
    with Pipeline.open("demo", plan="none", drafter="none") as pipeline:
        stream = pipeline.stream("def f(", max_new_tokens=24, ignore_eos=True)
        for _ in stream:
            clock.sleep(0.02)
    assert stream.result is not None
    metrics = stream.result.metrics
    assert metrics.watched_s == pytest.approx(24 * 0.02)
    assert metrics.waited_share == pytest.approx(0.2)


def told(**figures: float) -> str:
    metrics = Metrics(emitted=9, target_passes=9, decode_s=9, ttft_s=1, **figures)  # type: ignore[arg-type]
    plan = {"drafter": "hybrid", "format": "gguf"}
    done = SimpleNamespace(metrics=metrics, finish_reason="length", plan=plan, seed=7, thinking="")
    return ", ".join(_figures.details(done, sampled=False))  # type: ignore[arg-type]


def test_the_figures_say_that_the_machine_is_busy() -> None:
    assert ", busy machine: 4.1x slower passes, " in told(waited_s=5, slowdown=4.1)
    waiting = ", busy machine: 50% of the time waiting for a core, "
    assert waiting in told(waited_s=5, slowdown=1.1)
    assert waiting in told(waited_s=5)


def test_they_do_not_where_nothing_waited() -> None:
    assert "busy" not in told(waited_s=0.5, slowdown=1.1)
    # A long text makes passes slower, too: that alone shows no contention.
    assert "busy" not in told(waited_s=0.5, slowdown=4.1)
    assert "busy" not in told(slowdown=4.1)


# -- what llama.cpp's OpenMP is loaded with ----------------------------------------------------

_ASK = """
import os
from edgedec.hardware import contention
contention.machine_is_busy = lambda: {busy}
import importlib.util, sys
spec = importlib.util.spec_from_file_location("waiting", {path!r})
waiting = importlib.util.module_from_spec(spec)
spec.loader.exec_module(waiting)
{before}
with waiting.suited_to_the_load():
    print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"))
print(os.environ.get("GOMP_SPINCOUNT"))
"""
_WAITING = Path(__file__).parents[3] / "runtimes" / "llamacpp" / "waiting.py"


def loaded_with(*, busy: bool, before: str = "", **environment: str) -> list[str]:
    """What a library that is loaded then finds in the environment, and what is left there."""
    ask = _ASK.format(busy=busy, path=str(_WAITING), before=before)
    users = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=users | environment, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.splitlines()


@linux
def test_waits_are_short_on_a_busy_machine_only() -> None:
    assert loaded_with(busy=True) == ["1000 None", "None"]
    assert loaded_with(busy=False) == ["None None", "None"]


@linux
def test_what_the_user_set_stays() -> None:
    assert loaded_with(busy=True, GOMP_SPINCOUNT="77") == ["77 None", "77"]
    assert loaded_with(busy=True, OMP_WAIT_POLICY="active") == ["None active", "None"]


@linux
def test_a_loaded_openmp_is_left_alone(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f r-xp 00 08:01 5 /lib/x86_64-linux-gnu/libgomp.so.1.0.0\n")
    before = f"import pathlib; waiting._MAPS = pathlib.Path({str(maps)!r})"
    assert loaded_with(busy=True, before=before) == ["None None", "None"]


_LOAD = """
from edgedec.hardware import contention
contention.machine_is_busy = lambda: {busy}
from edgedec.runtimes.llamacpp import library
"""


@linux
@pytest.mark.parametrize("busy", [True, False])
def test_llamacpps_own_openmp_reads_it(busy: bool) -> None:
    pytest.importorskip("llama_cpp")
    shown = subprocess.run(
        [sys.executable, "-c", _LOAD.format(busy=busy)],
        env={**os.environ, "OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    if "GOMP_SPINCOUNT" not in shown.stderr:
        pytest.skip("llama.cpp was built without GNU's OpenMP")
    assert ("GOMP_SPINCOUNT = '1000'" in shown.stderr) is busy
