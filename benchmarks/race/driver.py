"""Runs the race: every prompt with every way in turn, each run a process; resumes.

Machines are shared and drift, so a prompt's runs follow one another, each time in another order.
All ways decode the first prompts of each kind of text; of competing ways only the best decodes
the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.race.children import GARBAGE, Failed, ask
from benchmarks.race.entrants import Entrant
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
        threads: of each model.
        context: cache positions.
        trial: prompts of each kind that all ways decode.
        limit_s: after which a run has hung.
        vocab_size: of the tokenizer.
        warm: a text that is decoded first, untimed.

    """

    tokens: int
    threads: int
    context: int
    trial: int
    limit_s: float
    vocab_size: int
    warm: Text


@dataclass(slots=True)
class Results:
    """Runs by text and way.

    Attributes:
        runs: by kind of text, its digest and the way's name.
        session: number of the present one; speeds of different sessions are not compared.

    """

    runs: dict[tuple[str, str, str], Run] = field(default_factory=dict)
    session: int = 1

    def add(self, run: Run) -> None:
        """Add a run; a later one of the same way and text replaces it."""
        self.runs[run["text"], run["digest"], run["way"]] = run

    def of(self, kind: str, way: str) -> list[Run]:
        """Return a way's runs on a kind of text."""
        return [run for (text, _, name), run in self.runs.items() if (text, name) == (kind, way)]

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
    kinds = dict.fromkeys(text.kind for text in texts)
    for kind in kinds:
        for number, text in enumerate(text for text in texts if text.kind == kind):
            names = in_race(entrants, results, kind, rules.trial if number >= rules.trial else None)
            turn = [entrant for entrant in entrants if entrant.name in names]
            first = number % max(1, len(turn))
            for entrant in turn[first:] + turn[:first]:
                if (kind, text.digest, entrant.name) in results.runs:
                    continue
                before = contention.usage()
                run = {**_one(entrant, text, rules), "session": results.session}
                run["others"] = contention.by_others(before, contention.usage())
                results.add(run)
                recorder.add(kind="run", **run)
                progress(f"{kind} {number + 1}, {text.name}: {entrant.name}: {_short(run)}")


def in_race(
    entrants: Sequence[Entrant], results: Results, kind: str, trial: int | None
) -> set[str]:
    """Return the ways that decode a kind's next text, after ``trial`` that all did; None: all."""
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


def _one(entrant: Entrant, text: Text, rules: Rules) -> Run:
    """Return one run, successful or not."""
    run: Run = {
        "peer": entrant.peer.NAME, "way": entrant.name, "text": text.kind, "prompt": text.name,
        "digest": text.digest, "expected_prompt_tokens": len(text.ids),
    }  # fmt: skip
    request = {
        "task": "run",
        "prompt": text.text, "ids": text.ids, "warm": rules.warm.text, "warm_ids": rules.warm.ids,
        "tokens": rules.tokens, "context": rules.context,
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
