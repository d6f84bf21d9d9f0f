"""Makes the table of a race: median speeds with intervals, perplexity and size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.race.driver import OK, Results, Run, rate
from benchmarks.race.entrants import Entrant
from edgedec.compare.side_by_side import repeated_share
from edgedec.hardware.contention import BUSY

_RESAMPLES = 10_000
# A model whose perplexity is this many times the best one was converted incorrectly.
_BROKEN = 3.0
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over prompts, with its 95% interval (bootstrap over prompts, fixed seed)."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.middle)} [{_short(self.low)}, {_short(self.high)}]"


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median of values and its interval; None if there are none."""
    if not values:
        return None
    found = np.asarray(values)
    picks = np.random.default_rng(0).integers(0, len(found), (_RESAMPLES, len(found)))
    low, high = np.quantile(np.median(found[picks], axis=1), (0.025, 0.975))
    return Spread(median(values), float(low), float(high))


class Report:
    """The figures of a race.

    ``models`` are records by peer and weights; ``encode`` turns the texts of peers that return no
    tokens into some.
    """

    def __init__(
        self,
        entrants: Sequence[Entrant],
        results: Results,
        models: Mapping[tuple[str, str], Mapping[str, Any]],
        encode: Callable[[str], Sequence[int]],
    ) -> None:
        self._entrants, self._results, self._models = entrants, results, models
        self._encode = encode
        measured = (model.get("perplexity") for model in models.values())
        self._best_perplexity = min((one for one in measured if one), default=float("inf"))

    def rows(self, kind: str) -> list[Row]:
        """Return a row for each way that ran on a kind of text."""
        rows = [self._row(entrant, kind) for entrant in self._entrants]
        return [row for row in rows if row is not None]

    def _row(self, entrant: Entrant, kind: str) -> Row | None:
        runs = self._results.of(kind, entrant.name)
        if not runs:
            return None
        good = [run for run in runs if run["outcome"] == OK]
        plain = self._by_prompt(kind, self._plain(entrant))
        compared = [(run, plain[run["digest"]]) for run in good if run["digest"] in plain]
        ratios = [rate(a) / rate(b) for a, b in compared if a["session"] == b["session"]]
        model = self._models.get((entrant.peer.NAME, entrant.way["weights"]), {})
        drafts = entrant.way["kind"] != "plain"
        return {
            "way": entrant.name,
            "text": kind,
            "prompts": len(good),
            "tokens_per_second": spread([rate(run) for run in good]),
            "over_plain": spread(ratios) if drafts else None,
            "prompt_s": spread([run["prompt_s"] for run in good]),
            "perplexity": model.get("perplexity"),
            "weight_bytes": model.get("weight_bytes"),
            "repeated_8_grams": median(map(self._repeated, good)) if good else None,
            "same": sum(_same(a, b) for a, b in compared) if drafts else None,
            "compared": len(compared) if drafts else None,
            "notes": self._notes(runs, model),
        }

    def _repeated(self, run: Run) -> float:
        """Return the share of a text's 8-grams that it repeats: what makes drafting easy."""
        written = run["written"]
        return repeated_share(self._encode(written) if isinstance(written, str) else written)

    def _plain(self, entrant: Entrant) -> str:
        """Return the plain way with the same weights that differs least in its settings."""
        mine = entrant.way["settings"].items()
        plain = [
            (len(mine & other.way["settings"].items()), other.name)
            for other in self._entrants
            if (other.peer.NAME, other.way["weights"], other.way["kind"])
            == (entrant.peer.NAME, entrant.way["weights"], "plain")
        ]
        return max(plain, default=(0, ""))[1]

    def _by_prompt(self, kind: str, way: str) -> dict[str, Run]:
        return {r["digest"]: r for r in self._results.of(kind, way) if r["outcome"] == OK}

    def _notes(self, runs: Sequence[Run], model: Mapping[str, Any]) -> list[str]:
        notes = []
        for outcome in sorted({run["outcome"] for run in runs} - {OK}):
            some = [run for run in runs if run["outcome"] == outcome]
            notes.append(f"{outcome} on {len(some)}: {some[0]['reason']}")
        read = [run["expected_prompt_tokens"] - run.get("prompt_tokens", 0) for run in runs]
        other = sum(
            run["outcome"] == OK and more != 0 for run, more in zip(runs, read, strict=True)
        )
        if other:
            notes.append(f"read {other} prompts as another number of tokens")
        value = model.get("perplexity")
        if value and value > _BROKEN * self._best_perplexity:
            notes.append("garbage: its perplexity is far from the best")
        if model.get("reason"):
            notes.append(f"perplexity not measured: {model['reason']}")
        return notes

    def best(self, rows: Sequence[Row]) -> list[Row]:
        """Return the fastest row that drafts of each peer, of those with the most prompts.

        A way that only took part in the trial has few, which are no measure of it.
        """
        found: dict[str, Row] = {}
        peers = {entrant.name: entrant.peer.NAME for entrant in self._entrants}
        for row in rows:
            if row["compared"] is not None and row["tokens_per_second"] is not None:
                peer = peers[row["way"]]
                if peer not in found or _rank(row) > _rank(found[peer]):
                    found[peer] = row
        return list(found.values())

    def disturbed(self, kind: str) -> str | None:
        """Return a warning if other programs computed during runs on a kind of text."""
        runs = [run for run in self._results.runs.values() if run["text"] == kind]
        some = sum((run.get("others") or 0.0) > BUSY for run in runs)
        if not some:
            return None
        return (
            f"other programs used more than {BUSY:.0%} of the processor during {some} of "
            f"{len(runs)} runs: these speeds are not those of a quiet machine"
        )

    def ratio(self, kind: str, way: str, other: str) -> Spread | None:
        """Return how much faster a way is than another, prompt by prompt.

        Machines drift, so only runs of one session are compared; None if there are none.
        """
        ours, theirs = self._by_prompt(kind, way), self._by_prompt(kind, other)
        both = [(run, theirs[key]) for key, run in ours.items() if key in theirs]
        return spread([rate(a) / rate(b) for a, b in both if a["session"] == b["session"]])


def _same(one: Run, other: Run) -> bool:
    """Return whether two runs wrote the same; a text may end a few tokens after the other."""
    written = one["written"], other["written"]
    if not all(isinstance(some, str) for some in written):
        return bool(written[0] == written[1])
    shorter, longer = sorted(written, key=len)
    return bool(longer.startswith(shorter))


def _rank(row: Row) -> tuple[int, float]:
    return row["prompts"], row["tokens_per_second"].middle


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "way": lambda row: str(row["way"]),
    "tokens/s": lambda row: _cell(row["tokens_per_second"]),
    "over its plain": lambda row: _cell(row["over_plain"]),
    "prompt s": lambda row: _cell(row["prompt_s"]),
    "perplexity": lambda row: _cell(row["perplexity"]),
    "MB": lambda row: _cell(row["weight_bytes"] and row["weight_bytes"] / 1e6),
    "repeats": lambda row: _cell(row["repeated_8_grams"]),
    "text as plain": lambda row: (
        "" if row["compared"] is None else f"{row['same']} of {row['compared']}"
    ),
    "prompts": lambda row: str(row["prompts"]),
}


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table and of its notes, each note once with its ways."""
    cells = [list(_COLUMNS), *([cell(row) for cell in _COLUMNS.values()] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    about: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            about.setdefault(note, []).append(row["way"])
    return [
        *(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in cells
        ),
        *(f"note: {ways[0]}{_more(ways)}: {note}" for note, ways in about.items()),
    ]


def _more(ways: Sequence[str]) -> str:
    return f" and {len(ways) - 1} more" if len(ways) > 1 else ""


def _cell(value: Spread | float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, Spread) else _short(value)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
