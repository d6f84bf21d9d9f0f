"""Runs the race: every prompt with every way in turn, each run a process; resumes.

Machines are shared and drift, so a prompt's runs follow one another, each time in another order.
All ways decode the first prompts of each kind of text; of competing ways only the best decodes
the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.race.children import GARBAGE, Failed, ask
from benchmarks.race.entrants import Entrant
from benchmarks.race.sampling import Sampling
from benchmarks.race.texts import Text
from edgedec.compare.records import Recorder
from edgedec.hardware import contention

Run = dict[str, Any]
OK = "ok"
# A way that failed this often on a kind of text, and never succeeded, is left out afterwards.
_GIVE_UP = 2


@dataclass(frozen=True, slots=True)
class Rules:
    """What all runs share.

    Attributes:
        tokens: decoded after each prompt; an end of text does not end it.
        sampling: how tokens are chosen.
        context: cache positions.
        trial: prompts of each kind that all ways decode.
        limit_s: after which a run has hung.
        vocab_size: of the tokenizer.
        warm: a text that is decoded first, untimed.

    """

    tokens: int
    sampling: Sampling
    context: int
    trial: int
    limit_s: float
    vocab_size: int
    warm: Text


@dataclass(slots=True)
class Results:
    """Runs by text, way and sampling.

    Attributes:
        runs: by kind of text, its digest, the way's name, temperature and seed.
        session: number of the present one; speeds of different sessions are not compared.

    """

    runs: dict[tuple[str, str, str, float, int], Run] = field(default_factory=dict)
    session: int = 1

    def add(self, run: Run) -> None:
        """Add a run; a later one of the same way, text, temperature and seed replaces it.

        Records of greedy runs may have neither temperature nor seed.
        """
        temperature, seed = run.get("temperature", 0.0), run.get("seed", 0)
        self.runs[run["text"], run["digest"], run["way"], temperature, seed] = run

    def at(self, temperature: float) -> Results:
        """Return the runs at one temperature."""
        found = {key: run for key, run in self.runs.items() if key[3] == temperature}
        return Results(found, self.session)

    def of(self, kind: str, way: str) -> list[Run]:
        """Return a way's runs on a kind of text."""
        return [run for key, run in self.runs.items() if (key[0], key[2]) == (kind, way)]

    def rates(self, kind: str, way: str) -> list[float]:
        """Return the tokens per second of those that succeeded."""
        return [rate(run) for run in self.of(kind, way) if run["outcome"] == OK]


def rate(run: Run) -> float:
    """Return the tokens per second after the first token."""
    return float(run["decoded"] / run["decode_s"])


def race(
    entrants: Sequence[Entrant],
    texts: Sequence[Text],
    rules: Rules,
    results: Results,
    recorder: Recorder,
    progress: Callable[[str], None],
) -> None:
    """Run what has no result yet; each result is recorded at once."""
    temperature, seeds = rules.sampling.temperature, rules.sampling.seeds
    for turn, text, number, seed in _turns(texts, seeds):
        trial = rules.trial * seeds if number >= rules.trial else None
        names = in_race(entrants, results.at(temperature), text.kind, trial)
        some = [entrant for entrant in entrants if entrant.name in names]
        first = turn % max(1, len(some))
        for entrant in some[first:] + some[:first]:
            if (text.kind, text.digest, entrant.name, temperature, seed) in results.runs:
                continue
            before = contention.usage()
            run = {**_one(entrant, text, seed, rules), "session": results.session}
            run["others"] = contention.by_others(before, contention.usage())
            results.add(run)
            recorder.add(kind="run", **run)
            again = f", seed {seed}" if seeds > 1 else ""
            where = f"{text.kind} {number + 1}, {text.name}{again}"
            progress(f"{where}: {entrant.name}: {_short(run)}")


def _turns(texts: Sequence[Text], seeds: int) -> Iterator[tuple[int, Text, int, int]]:
    """Yield each text with each seed: the turn's number, the text, its number and the seed.

    Both numbers are counted within a kind of text.
    """
    for kind in dict.fromkeys(text.kind for text in texts):
        for number, text in enumerate(text for text in texts if text.kind == kind):
            for seed in range(seeds):
                yield number * seeds + seed, text, number, seed


def in_race(
    entrants: Sequence[Entrant], results: Results, kind: str, trial: int | None
) -> set[str]:
    """Return the ways that decode a kind's next text, after ``trial`` runs of all; None: all."""
    able = [entrant for entrant in entrants if not _given_up(results.of(kind, entrant.name))]
    if trial is None:
        return {entrant.name for entrant in able}
    best: dict[tuple[str, ...], tuple[float, str]] = {}
    for entrant in able:
        speeds = results.rates(kind, entrant.name)[:trial]
        if speeds:
            found = (len(speeds) / sum(1 / speed for speed in speeds), entrant.name)
            best[entrant.rivals] = max(best.get(entrant.rivals, found), found)
    return {name for _, name in best.values()}


def _given_up(runs: Sequence[Run]) -> bool:
    return len(runs) >= _GIVE_UP and all(run["outcome"] != OK for run in runs)


def _one(entrant: Entrant, text: Text, seed: int, rules: Rules) -> Run:
    """Return one run, successful or not."""
    sampling = rules.sampling.request(seed)
    run: Run = {
        "peer": entrant.peer.NAME, "way": entrant.name, "text": text.kind, "prompt": text.name,
        "digest": text.digest, "expected_prompt_tokens": len(text.ids), **sampling,
    }  # fmt: skip
    request = {
        "task": "run",
        "prompt": text.text, "ids": text.ids, "warm": rules.warm.text, "warm_ids": rules.warm.ids,
        "tokens": rules.tokens, "context": rules.context, **sampling,
    }  # fmt: skip
    try:
        answer = ask(*entrant.request(request), rules.limit_s)
        # The answer's fields do not replace those of the run.
        return {**checked(answer, rules), **run, "outcome": OK}
    except Failed as error:
        return {**run, "outcome": error.kind, "reason": str(error)}


def checked(answer: dict[str, Any], rules: Rules) -> Run:
    """Return a run's figures, and ``written``, its token ids or text; Failed if they are none."""
    times = answer.pop("times", None)
    if not isinstance(times, dict):
        raise Failed(GARBAGE, "its answer has no times")
    for name in ("prompt_s", "decode_s"):
        value = times.get(name)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise Failed(GARBAGE, f"{name} is {value!r}, expected seconds")
    for name in ("processor_s_per_token", "joules_per_token"):
        value = times.get(name)
        # A counter that did not move between two readings measured nothing.
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            times[name] = None
    # The last round of a program may write more than was asked for.
    decoded = times.get("decoded")
    if not isinstance(decoded, int) or not rules.tokens - 1 <= decoded <= 2 * rules.tokens:
        raise Failed(GARBAGE, f"it timed {decoded!r} of {rules.tokens} tokens")
    ids, text = answer.pop("ids", None), answer.pop("text", None)
    if isinstance(ids, list) and len(ids) == rules.tokens:
        if not all(isinstance(one, int) and 0 <= one < rules.vocab_size for one in ids):
            raise Failed(GARBAGE, "it wrote tokens that the vocabulary does not have")
    elif not isinstance(text, str) or not text:
        raise Failed(GARBAGE, f"expected {rules.tokens} token ids or a text")
    return {**times, **answer, "written": ids or text}


def _short(run: Run) -> str:
    if run["outcome"] != OK:
        return f"{run['outcome']}: {run['reason']}"
    return f"{rate(run):.1f} tokens/s"
