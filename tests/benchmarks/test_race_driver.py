"""The race of peers: who runs what, what is recorded, and that a rerun goes on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_peers import BROKEN, FAST, PLAIN, SLOW, WAYS, peer, ran
from kinds import nightly

from benchmarks.bundles import Bundles
from benchmarks.race import driver
from benchmarks.race.__main__ import _earlier
from benchmarks.race.children import execute
from benchmarks.race.choice import Choice
from benchmarks.race.driver import Results, Rules
from benchmarks.race.entrants import Entrant, Gathering
from benchmarks.race.environment import ModelMaker
from benchmarks.race.protocol import Peer
from benchmarks.race.report import Report, table
from benchmarks.race.sampling import Sampling
from benchmarks.race.spread import Spread, spread
from benchmarks.race.texts import Text
from benchmarks.records import resuming_alone
from edgedec.compare.records import Recorder
from edgedec.errors import InputError

TEXTS = [Text("code", f"prompt {n}", f"text {n}", (1, 2, 3)) for n in range(3)]
RULES = Rules(8, Sampling(), 64, 1, 30.0, 100, Text("warm", "warm", "warm", (1, 2)))
SETTINGS = {"tokens": 8}


def as_bytes(text: str) -> list[int]:
    return list(text.encode())


def entrants(folder: Path, found: Peer, recorder: Recorder, *, earlier: Any = ()) -> list[Entrant]:
    maker = ModelMaker(Bundles(folder, folder), None, folder, {found.NAME: found})
    gathering = Gathering(maker, folder / "work", recorder, earlier, lambda line: None)
    return list(gathering.entrants(Choice([found.NAME]), 1, [1, 2, 3]))


def race(
    folder: Path,
    found: Peer,
    rules: Rules = RULES,
    texts: Any = TEXTS,
    stop: int = 10**9,
    retry: bool = False,
) -> tuple[list[Entrant], Results]:
    """One session of a race; it is interrupted after ``stop`` runs."""
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        if len(lines) == stop:
            raise KeyboardInterrupt

    with resuming_alone(folder / "out", "peers", SETTINGS) as (recorder, earlier):
        results = _earlier(earlier, retry)
        some = entrants(folder, found, recorder, earlier=earlier)
        driver.race(some, texts, rules, results, recorder, progress)
    return some, results


def test_all_ways_run_on_the_trial_and_the_best_of_rivals_after_it(tmp_path: Path) -> None:
    race(tmp_path, peer(tmp_path))
    first, later = ran(tmp_path)[:4], ran(tmp_path)[4:]
    assert sorted(first) == sorted(f"fake {way['kind']} text 0" for way in WAYS)
    assert sorted(later) == sorted(
        f"fake {kind} text {n}" for n in (1, 2) for kind in ("plain", "draft", "lookup")
    )


def test_the_faster_of_rivals_goes_on_not_just_any(tmp_path: Path) -> None:
    _, results = race(tmp_path, peer(tmp_path, ways=(PLAIN, SLOW, FAST)))
    names = {name for _, _, name, *_ in results.runs if "draft" in name}
    counts = {name: len(results.of("code", name)) for name in names}
    assert counts == {
        "fake int4 draft seconds=1.0 length=4": 3,
        "fake int4 draft seconds=1.5 length=1": 1,
    }


def test_with_as_many_trials_as_texts_all_run_on_all(tmp_path: Path) -> None:
    race(tmp_path, peer(tmp_path), replace(RULES, trial=3))
    assert len(ran(tmp_path)) == len(WAYS) * len(TEXTS)


def test_another_way_goes_first_each_time(tmp_path: Path) -> None:
    race(tmp_path, peer(tmp_path, ways=(PLAIN, FAST)))
    assert [line.split()[1] for line in ran(tmp_path)] == [
        *("plain", "draft"), *("draft", "plain"), *("plain", "draft"),
    ]  # fmt: skip


@pytest.mark.parametrize("stop", nightly([4, 1, 6]))
def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, stop: int) -> None:
    found = peer(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        race(tmp_path, found, stop=stop)
    assert len(ran(tmp_path)) == stop
    _, resumed = race(tmp_path, found)
    once = ran(tmp_path)
    assert len(once) == 10
    race(tmp_path, found)
    assert ran(tmp_path) == once
    whole = tmp_path / "whole"
    whole.mkdir()
    _, straight = race(whole, peer(whole))
    assert straight.runs.keys() == resumed.runs.keys()
    assert sorted(ran(whole)) == sorted(once)


def test_a_torn_last_record_is_run_again(tmp_path: Path) -> None:
    found = peer(tmp_path)
    race(tmp_path, found, texts=TEXTS[:1])
    file = tmp_path / "out" / "peers.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.rindex(b'{"benchmark"') + 30])
    race(tmp_path, found, texts=TEXTS[:1])
    assert len(ran(tmp_path)) == len(WAYS) + 1


def test_records_name_a_kind_of_text_by_its_former_name() -> None:
    run = {"kind": "run", "text": "hopeless", "digest": "x", "way": "mine", "outcome": "ok"}
    assert list(_earlier([run], retry=False).runs) == [("unpredictable", "x", "mine", 0.0, 0)]


def test_a_broken_record_and_other_settings_are_named(tmp_path: Path) -> None:
    race(tmp_path, peer(tmp_path), texts=TEXTS[:1])
    file = tmp_path / "out" / "peers.jsonl"
    with (
        pytest.raises(InputError, match=r"peers\.jsonl: a run with other tokens: .*another folder"),
        resuming_alone(tmp_path / "out", "peers", {"tokens": 16}),
    ):
        pass
    lines = file.read_text("utf-8").splitlines()
    file.write_text("\n".join([*lines[:2], "{broken", *lines[2:]]) + "\n", "utf-8")
    with (
        pytest.raises(InputError, match=r"peers\.jsonl:3: not a record"),
        resuming_alone(tmp_path / "out", "peers", SETTINGS),
    ):
        pass


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    with (
        resuming_alone(tmp_path / "out", "peers", SETTINGS),
        pytest.raises(InputError, match=r"peers\.jsonl: another run writes to it"),
        resuming_alone(tmp_path / "out", "peers", SETTINGS),
    ):
        pass
    with resuming_alone(tmp_path / "out", "peers", SETTINGS) as (_, earlier):
        assert len(earlier) == 1


@pytest.mark.parametrize("name", nightly(BROKEN, 4))
def test_a_broken_peer_is_reported_and_the_others_run(tmp_path: Path, name: str) -> None:
    before, outcome, reason = BROKEN[name]
    broken = f"if request['kind'] == 'lookup': {before}"
    rules = replace(RULES, limit_s=5.0)
    some, results = race(tmp_path, peer(tmp_path, before=broken), rules)
    failed = [run for run in results.runs.values() if run["outcome"] != driver.OK]
    assert [run["outcome"] for run in failed] == [outcome]
    assert reason in failed[0]["reason"]
    assert "\n" not in failed[0]["reason"]
    # It has no speed to compete with, so it does not go on; the others do.
    assert len(ran(tmp_path)) == 8
    rows = Report(some, results, {}, as_bytes).rows("code")
    assert [row["prompts"] for row in rows] == [3, 1, 3, 0]
    assert rows[-1]["notes"][0].startswith(f"{outcome} on 1: ")


def test_a_way_that_keeps_failing_is_left_out(tmp_path: Path) -> None:
    found = peer(tmp_path, before="if request['kind'] == 'lookup': raise OSError")
    race(tmp_path, found, replace(RULES, trial=3))
    assert sum("lookup" in line for line in ran(tmp_path)) == 2


def test_what_a_hanging_peer_started_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    before = f"import subprocess; subprocess.run([sys.executable, '-c', {sleeping(file)!r}])"
    hanging = peer(tmp_path, before=before, ways=(PLAIN,))
    for limit_s in (1.0, 4.0, 16.0, 64.0):  # on a busy machine a peer starts slowly
        race(tmp_path / str(limit_s), hanging, replace(RULES, limit_s=limit_s), TEXTS[:1])
        if file.exists() and file.read_text():
            break
    ends(int(file.read_text()))


def test_the_table_has_speed_quality_size_and_equal_text(tmp_path: Path) -> None:
    some, results = race(tmp_path, peer(tmp_path))
    models = {("fake", "int4"): {"perplexity": 7.0, "weight_bytes": 2_000_000}}
    report = Report(some, results, models, as_bytes)
    rows = {row["way"]: row for row in report.rows("code")}
    fast = rows["fake int4 draft seconds=1.0 length=4"]
    assert fast["tokens_per_second"].middle == 8.0
    assert fast["over_plain"].middle == 2.0
    assert (fast["same"], fast["compared"]) == (3, 3)
    other = rows["fake int4 lookup seconds=1.25 token=6"]
    assert (other["same"], other["compared"]) == (0, 3)
    assert rows["fake int4 plain seconds=2.0"]["compared"] is None
    lines = table(list(rows.values()))
    assert "8 [8, 8]" in lines[3]
    assert "3 of 3" in lines[3]
    assert " 7 " in lines[3]
    noted = table([{**row, "notes": ["slow start"]} for row in rows.values()])
    assert noted[:-1] == lines
    assert noted[-1] == "note: fake int4 plain seconds=2.0 and 3 more: slow start"
    (best,) = report.best(list(rows.values()))
    assert best is fast
    trial = {**fast, "runs": fast["runs"] - 1, "tokens_per_second": Spread(1e6, 1e6, 1e6)}
    slow = rows["fake int4 plain seconds=2.0"]
    slower = {**fast, "tokens_per_second": Spread(1.0, 1.0, 1.0)}
    assert report.best([slower, slow]) == [slow]
    assert report.best([fast, trial]) == [fast] != report.best([trial])
    ratio = report.ratio("code", fast["way"], "fake int4 plain seconds=2.0")
    assert ratio is not None
    assert ratio.middle == 2.0


def test_an_interval_holds_the_median_and_widens_with_the_spread() -> None:
    narrow = spread(enumerate([10.0, 10.1, 9.9, 10.0] * 4))
    wide = spread(enumerate([5.0, 15.0, 9.0, 11.0] * 4))
    assert narrow is not None
    assert wide is not None
    assert narrow.low <= narrow.middle <= narrow.high
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)
    assert spread([]) is None


def test_a_model_whose_perplexity_is_far_off_is_called_garbage(tmp_path: Path) -> None:
    some, results = race(tmp_path, peer(tmp_path), texts=TEXTS[:1])
    good = {("fake", "int4"): {"perplexity": 7.0}, ("other", "int8"): {"perplexity": 6.0}}
    bad = {**good, ("fake", "int4"): {"perplexity": 700.0}}
    assert not any(row["notes"] for row in Report(some, results, good, as_bytes).rows("code"))
    assert all(
        "garbage" in row["notes"][0] for row in Report(some, results, bad, as_bytes).rows("code")
    )


def test_speeds_of_different_sessions_are_not_compared_but_texts_are(tmp_path: Path) -> None:
    found = peer(tmp_path, ways=(PLAIN, FAST))
    with pytest.raises(KeyboardInterrupt):
        race(tmp_path, found, stop=3)
    some, results = race(tmp_path, found)
    report = Report(some, results, {}, as_bytes)
    row = report.rows("code")[1]
    # The second text was interrupted between its two ways.
    assert {run["session"] for run in results.runs.values()} == {1, 2}
    assert (row["same"], row["compared"]) == (3, 3)
    one = [run for run in results.runs.values() if run["session"] == 1]
    for run in one:
        run["decode_s"] *= 10
    ratio = report.ratio("code", row["way"], some[0].name)
    assert ratio is not None
    assert (ratio.low, ratio.high) == (2.0, 2.0)
    apart = [{**run, "session": n} for n, run in enumerate(results.runs.values())]
    for run in apart:
        results.add(run)
    report = Report(some, results, {}, as_bytes)
    assert report.ratio("code", row["way"], some[0].name) is None


def test_what_failed_runs_again_only_if_asked(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    before = f"assert request['kind'] == 'plain' or not Path({str(broken)!r}).exists()"
    found = peer(tmp_path, before=before, ways=(PLAIN, FAST))
    race(tmp_path, found, texts=TEXTS[:1])
    broken.unlink()
    _, results = race(tmp_path, found, texts=TEXTS[:1])
    assert sorted(run["outcome"] for run in results.runs.values()) == ["crash", "ok"]
    _, results = race(tmp_path, found, texts=TEXTS[:1], retry=True)
    assert [run["outcome"] for run in results.runs.values()] == ["ok", "ok"]
    assert len(ran(tmp_path)) == 3


def test_a_prompt_read_as_other_tokens_is_noted(tmp_path: Path) -> None:
    some, results = race(tmp_path, peer(tmp_path, ways=(PLAIN,)), texts=TEXTS[:2])
    (row,) = Report(some, results, {}, as_bytes).rows("code")
    assert row["notes"] == []
    next(iter(results.runs.values()))["prompt_tokens"] = 4
    (row,) = Report(some, results, {}, as_bytes).rows("code")
    assert row["notes"] == ["read 1 prompts as another number of tokens"]


@pytest.mark.parametrize(("text", "same"), [("one two", 1), ("one two, three", 1), ("one too", 0)])
def test_texts_of_programs_are_equal_up_to_the_end_of_the_shorter(
    tmp_path: Path, text: str, same: int
) -> None:
    times = "'times': {'prompt_s': 1, 'decode_s': 1, 'decoded': 10}"
    written = f"'one two,' if request['kind'] == 'plain' else {text!r}"
    found = peer(tmp_path, before=f"return {{'text': {written}, {times}}}", ways=(PLAIN, FAST))
    some, results = race(tmp_path, found, texts=TEXTS[:1])
    plain, fast = Report(some, results, {}, as_bytes).rows("code")
    assert (plain["prompts"], fast["prompts"]) == (1, 1)
    assert (fast["same"], fast["compared"]) == (same, 1)


@pytest.mark.parametrize("tokens", [False, True])
def test_what_a_text_repeats_is_counted_in_tokens(tmp_path: Path, tokens: bool) -> None:
    # Seven letters of two bytes each: of 35 8-grams of bytes 14 are new, of 14 of letters 7.
    text = "äöüßéàè" * 3
    ids = as_bytes(text)
    written = f"'ids': {ids}" if tokens else f"'text': {text!r}"
    times = f"'times': {{'prompt_s': 1, 'decode_s': 1, 'decoded': {len(ids)}}}"
    found = peer(tmp_path, before=f"return {{{written}, {times}}}", ways=(PLAIN,))
    rules = replace(RULES, tokens=len(ids), vocab_size=256)
    some, results = race(tmp_path, found, rules, texts=TEXTS[:1])
    (row,) = Report(some, results, {}, as_bytes).rows("code")
    assert row["repeated_8_grams"] == pytest.approx(21 / 35)


def test_an_answer_replaces_nothing_that_is_known_of_a_run(tmp_path: Path) -> None:
    times = "'times': {'prompt_s': 1, 'decode_s': 1, 'decoded': 8}"
    more = "'way': 'mine', 'text': 'a text', 'digest': 'x', 'outcome': 'splendid', 'prompt': 'y'"
    found = peer(tmp_path, before=f"return {{{more}, {times}}}", ways=(PLAIN,))
    some, results = race(tmp_path, found, texts=TEXTS[:1])
    (run,) = results.of("code", some[0].name)
    assert (run["outcome"], run["prompt"], run["written"]) == (driver.OK, "prompt 0", "a text")
    assert run["digest"] == TEXTS[0].digest


@pytest.mark.skipif(sys.platform == "win32", reason="no alarm signal")
def test_an_interrupt_ends_what_runs(tmp_path: Path) -> None:
    file = tmp_path / "pid"

    def interrupt() -> None:
        while not (file.exists() and file.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        execute([sys.executable, "-c", sleeping(file)], tmp_path / "log", 60)
    other.join()
    ends(int(file.read_text()))


def sleeping(file: Path) -> str:
    """A program that writes its process id and waits."""
    return (
        f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid()));"
        " time.sleep(600)"
    )


def ends(pid: int) -> None:
    """The process is no more, or is soon: who ended its parent may not wait for it."""
    for _ in range(3000):
        try:
            os.kill(pid, 0)
            status = Path(f"/proc/{pid}/stat")
            if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except ProcessLookupError:
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("it goes on")


def test_a_machine_that_is_busy_otherwise_is_said(tmp_path: Path) -> None:
    some, results = race(tmp_path, peer(tmp_path, ways=(PLAIN,)))
    report, runs = Report(some, results, {}, as_bytes), list(results.runs.values())
    assert all("others" in run for run in runs)
    for run, share in zip(runs, (0.05, None, 0.02), strict=True):
        run["others"] = share
    assert report.disturbed("code") is None
    runs[0]["others"] = 0.5
    assert "10% of the processor during 1 of 3 runs" in str(report.disturbed("code"))
