"""The race at a temperature: seeds, what is compared, and what the processor spends."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from fake_peers import FAST, PLAIN, SLOW, peer, ran

from benchmarks.peers import llamacpp
from benchmarks.race import driver
from benchmarks.race.__main__ import _earlier
from benchmarks.race._child import Tools, Used
from benchmarks.race.choice import Choice
from benchmarks.race.driver import Results
from benchmarks.race.entrants import Entrant, Gathering
from benchmarks.race.environment import ModelMaker
from benchmarks.race.report import Report, table
from benchmarks.race.sampling import TOP_P, Sampling
from benchmarks.race.spread import spread
from benchmarks.records import resuming_alone
from edgedec._support.fields import json_object
from tests.benchmarks.test_race_driver import RULES, SETTINGS, TEXTS, Bundles, as_bytes

SAMPLED = replace(RULES, sampling=Sampling(0.7, 2))
# Notes what it was asked for; the text is another one for each seed.
NOTES = (
    'file = open("asked.txt".join([str(Path(__file__).parent) + os.sep, ""]), "a");'
    'print(request["temperature"], request["top_p"], request["seed"], file=file);'
    "file.close()"
)
BY_SEED = (
    "return {'ids': [request['seed']] * request['tokens'], 'prompt_tokens': 3,"
    " 'times': {'prompt_s': 1, 'decode_s': 1, 'decoded': request['tokens'],"
    " 'processor_s_per_token': 0.25, 'joules_per_token': 0}}"
)


def race(
    folder: Path, found: Any, rules: Any = SAMPLED, **choice: Any
) -> tuple[list[Entrant], Results, dict[str, str]]:
    """One session in the same folder of records."""
    sampled = rules.sampling.temperature > 0
    with resuming_alone(folder / "out", "peers", SETTINGS) as (recorder, earlier):
        results = _earlier(earlier, False)
        maker = ModelMaker(Bundles(folder, folder), None, folder, {found.NAME: found})
        gathering = Gathering(maker, folder / "work", recorder, earlier, lambda line: None)
        chosen = Choice([found.NAME], sampled=sampled, **choice)
        some = list(gathering.entrants(chosen, 1, [1, 2, 3]))
        driver.race(some, TEXTS, rules, results, recorder, lambda line: None)
    return some, results, gathering.skipped


def row(some: list[Entrant], results: Results, way: int, temperature: float = 0.7) -> Any:
    return Report(some, results, {}, as_bytes, temperature).rows("code")[way]


def test_each_prompt_runs_with_each_seed_beside_greedy_runs(tmp_path: Path) -> None:
    found = peer(tmp_path, ways=(PLAIN,), before=NOTES)
    race(tmp_path, found, RULES)
    race(tmp_path, found)
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    assert asked == ["0.0 1.0 0"] * 3 + [f"0.7 {TOP_P} 0", f"0.7 {TOP_P} 1"] * 3
    some, results, _ = race(tmp_path, found, RULES)
    race(tmp_path, found)
    assert len(ran(tmp_path)) == 9
    assert (row(some, results, 0)["prompts"], row(some, results, 0)["runs"]) == (3, 6)
    assert row(some, results, 0, 0.0)["runs"] == 3
    # More seeds go on where fewer stopped, another temperature does not.
    race(tmp_path, found, replace(RULES, sampling=Sampling(0.7, 3)))
    assert len(ran(tmp_path)) == 12
    race(tmp_path, found, replace(RULES, sampling=Sampling(0.6, 1)))
    assert len(ran(tmp_path)) == 15


def test_the_trial_is_all_seeds_of_its_prompts(tmp_path: Path) -> None:
    _, results, _ = race(tmp_path, peer(tmp_path, ways=(PLAIN, SLOW, FAST)))
    counts = [
        len(results.of("code", name)) for name in dict.fromkeys(key[2] for key in results.runs)
    ]
    assert sorted(counts) == [2, 6, 6]


def test_greedy_records_without_temperature_are_read(repository: Path) -> None:
    file = repository / "docs" / "measurements" / "peers_epyc.jsonl"
    records = [cast(Any, json_object(line)) for line in file.read_text("utf-8").splitlines()]
    runs = [record for record in records if record["kind"] == "run"]
    results = _earlier(records, False)
    assert not any("temperature" in run for run in runs)
    assert len(results.runs) == len({(r["text"], r["digest"], r["way"]) for r in runs}) > 300
    assert results.at(0.0).runs == results.runs
    assert results.at(0.7).runs == {}


def test_runs_of_one_prompt_are_resampled_together() -> None:
    values = [5.0, 15.0, 9.0, 11.0, 7.0, 13.0]
    once = spread(enumerate(values))
    thrice = spread((prompt, value) for prompt, value in enumerate(values) for _ in range(3))
    independent = spread(enumerate(values * 3))
    assert once is not None
    assert independent is not None
    assert thrice == once
    assert independent.high - independent.low < once.high - once.low


def test_prompts_with_fewer_runs_keep_their_weight() -> None:
    found = spread([("a", 1.0), ("a", 2.0), ("b", 9.0)])
    assert found is not None
    assert (found.middle, found.low, found.high) == (2.0, 1.5, 9.0)


@pytest.mark.parametrize("coupled", [False, True])
def test_texts_are_compared_only_where_a_seed_promises_plain_text(
    tmp_path: Path, coupled: bool
) -> None:
    found: Any = peer(tmp_path, ways=(PLAIN, FAST), before=BY_SEED)
    if coupled:
        found.COUPLED = ((FAST["kind"], FAST["settings"]),)
    some, results, _ = race(tmp_path, found)
    fast = row(some, results, 1)
    assert (fast["same"], fast["compared"]) == ((6, 6) if coupled else (None, None))
    assert ("text as plain" in table([fast])[0]) == coupled
    # The runs are paired by their seed, and a way that is not compared is still a rival's best.
    assert fast["over_plain"].middle == 1.0
    assert Report(some, results, {}, as_bytes, 0.7).best([fast]) == [fast]
    assert row(some, results, 0)["compared"] is None


@pytest.mark.parametrize(("before", "noted"), [("pass", True), (BY_SEED, False)])
def test_a_peer_that_does_not_sample_is_noted(tmp_path: Path, before: str, noted: bool) -> None:
    some, results, _ = race(tmp_path, peer(tmp_path, ways=(PLAIN,), before=before))
    notes = row(some, results, 0)["notes"]
    said = ["wrote one text with all seeds of 3 prompts: it may not sample"]
    assert notes == (said if noted else [])
    greedy = replace(RULES, sampling=Sampling(0.0, 2))
    some, results, _ = race(tmp_path, peer(tmp_path, ways=(PLAIN,)), greedy)
    assert row(some, results, 0, 0.0)["notes"] == []


def test_kinds_that_cannot_sample_are_skipped_with_the_reason(tmp_path: Path) -> None:
    found: Any = peer(tmp_path, ways=(PLAIN, FAST))
    found.NOT_SAMPLED = {"draft": "it crashes"}
    found.SAMPLED_KINDS = (("exact", {"seconds": 1.0}),)
    some, _, skipped = race(tmp_path, found)
    assert [entrant.way["kind"] for entrant in some] == ["plain", "exact"]
    assert skipped == {"fake draft, sampled": "it crashes"}
    some, _, skipped = race(tmp_path, found, RULES)
    assert [entrant.way["kind"] for entrant in some] == ["plain", "draft"]
    assert skipped == {}


def test_ways_are_chosen_by_their_names(tmp_path: Path) -> None:
    pattern = re.compile("plain|length=4")
    some, *_ = race(tmp_path, peer(tmp_path, ways=(PLAIN, SLOW, FAST)), pattern=pattern)
    assert [entrant.way for entrant in some] == [PLAIN, FAST]
    nothing, *_ = race(tmp_path, peer(tmp_path), pattern=re.compile("no such way"))
    assert nothing == []


def test_what_is_used_is_a_column_where_something_measured_it(tmp_path: Path) -> None:
    some, results, _ = race(tmp_path, peer(tmp_path, ways=(PLAIN,), before=BY_SEED))
    found = row(some, results, 0)
    assert found["processor_s_per_token"].middle == 0.25
    # A counter that stood still has measured nothing.
    assert found["joules_per_token"] is None
    assert "processor s/token" in table([found])[0]
    assert "J/token" not in table([found])[0]


def _burn() -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="no resource usage")
def test_processor_time_is_that_of_the_tokens_after_the_first() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    tools, more = (
        Tools(),
        [lambda: None, _burn, lambda: subprocess.run([sys.executable, "-c", busy])],
    )
    used = []
    for work in more:
        tools.start()
        _burn()
        tools.tokens()
        work()
        tools.tokens(2)
        used.append(cast(float, tools.times()["processor_s_per_token"]))
    assert used[0] < 0.01
    assert 0.02 < used[1] < 0.09
    assert used[2] >= 0.1


def test_energy_is_that_of_the_tokens_or_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    tools, joules = Tools(), iter([1.0, 2.0, 4.0, None, 8.0])
    monkeypatch.setattr(tools.meter, "_energy", type("E", (), {"used": lambda _: next(joules)})())
    tools.start()
    for count in (1, 2, 2):
        tools.tokens(count)
    assert tools.times()["joules_per_token"] == pytest.approx(6 / 4)
    tools.tokens()
    tools.tokens()
    assert tools.times()["joules_per_token"] is None
    assert Used(3.0, None).since(Used(1.0, 2.0)).per(4) == {
        "processor_s_per_token": 0.5, "joules_per_token": None,
    }  # fmt: skip


def test_the_meter_needs_the_standard_library_alone(repository: Path) -> None:
    child = repository / "benchmarks" / "race"
    script = (
        f"import sys; sys.path.append({str(child)!r}); import _child; "
        "print(_child.Tools().meter.read())"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True
    )
    assert found.stdout.startswith("Used(processor_s="), found.stderr


_PROGRAM = """#!{python}
import sys, time
count = int(sys.argv[sys.argv.index("-n") + 1])
while time.process_time() < 0.2 + 0.02 * count:
    pass
print(open(sys.argv[sys.argv.index("-f") + 1]).read() + " " + " ".join(sys.argv[1:]))
print(f"encoded  3 tokens in 0.5 seconds")
print(f"decoded  {{count + 1}} tokens in 1.5 seconds")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no scripts with a first line")
def test_llama_cpp_samples_and_its_loading_is_no_processor_time_of_tokens(tmp_path: Path) -> None:
    program = tmp_path / "llama.cpp" / "bin" / "llama-speculative-simple"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    request = {
        "settings": {"length": 3, "flash": "on"}, "kind": "draft", "threads": 1, "tokens": 16,
        "context": 64, "folder": str(tmp_path), "models": {"target": "t", "draft": "d"},
        "prompt": "abc", **Sampling(0.7).request(5),
    }  # fmt: skip
    sampled = llamacpp.run(request, Tools())
    assert "--temp 0.7 --top-p 0.95 --seed 5" in sampled["text"]
    # Interpreter and loading take more than a third of the whole, and are left out.
    assert 0.015 < sampled["times"]["processor_s_per_token"] < 0.026
    greedy = llamacpp.run({**request, **Sampling().request(0)}, Tools())
    assert "--temp 0 " in greedy["text"]
    assert "--seed" not in greedy["text"]
