"""Makes the table of a race: median speeds with intervals, perplexity and size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.race.choice import keeps_text
from benchmarks.race.driver import OK, Results, Run, rate
from benchmarks.race.entrants import Entrant
from benchmarks.race.spread import Spread, short, spread
from edgedec.compare.side_by_side import repeated_share
from edgedec.hardware.contention import BUSY

# A model whose perplexity is this many times the best one was converted incorrectly.
_BROKEN = 3.0
Row = dict[str, Any]


class Report:
    """The figures of a race at one temperature.

    ``models`` are records by peer and weights; ``encode`` turns the texts of peers that return no
    tokens into some.
    """

    def __init__(
        self,
        entrants: Sequence[Entrant],
        results: Results,
        models: Mapping[tuple[str, str], Mapping[str, Any]],
        encode: Callable[[str], Sequence[int]],
        temperature: float = 0.0,
    ) -> None:
        self._entrants, self._models = entrants, models
        self._results, self.temperature = results.at(temperature), temperature
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
        pairs = self._pairs(kind, entrant.name, self._plain(entrant))
        drafts = entrant.way["kind"] != "plain"
        promised = keeps_text(entrant.peer, entrant.way, self.temperature)
        model = self._models.get((entrant.peer.NAME, entrant.way["weights"]), {})
        return {
            "way": entrant.name,
            "text": kind,
            "temperature": self.temperature,
            "prompts": len({run["digest"] for run in good}),
            "runs": len(good),
            "tokens_per_second": spread((run["digest"], rate(run)) for run in good),
            "over_plain": _ratio(pairs) if drafts else None,
            "worst": _worst(pairs) if drafts else None,
            "tokens_per_pass": _tokens_per_pass(good) if drafts else None,
            "acceptance": _acceptance(good) if drafts else None,
            "prompt_s": _spread(good, "prompt_s"),
            "processor_s_per_token": _spread(good, "processor_s_per_token"),
            "joules_per_token": _spread(good, "joules_per_token"),
            "perplexity": model.get("perplexity"),
            "weight_bytes": model.get("weight_bytes"),
            "repeated_8_grams": median(map(self._repeated, good)) if good else None,
            "same": sum(_same(a, b) for a, b in pairs) if promised else None,
            "compared": len(pairs) if promised else None,
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

    def _pairs(self, kind: str, way: str, other: str) -> list[tuple[Run, Run]]:
        """Return the runs of two ways on the same prompt with the same seed."""
        ours, theirs = (
            {
                (run["digest"], run.get("seed", 0)): run
                for run in self._results.of(kind, name)
                if run["outcome"] == OK
            }
            for name in (way, other)
        )
        return [(run, theirs[key]) for key, run in ours.items() if key in theirs]

    def _notes(self, runs: Sequence[Run], model: Mapping[str, Any]) -> list[str]:
        notes = []
        for outcome in sorted({run["outcome"] for run in runs} - {OK}):
            some = [run for run in runs if run["outcome"] == outcome]
            notes.append(f"{outcome} on {len(some)}: {some[0]['reason']}")
        good = [run for run in runs if run["outcome"] == OK]
        other = {r["digest"] for r in good if r["expected_prompt_tokens"] != r.get("prompt_tokens")}
        if other:
            notes.append(f"read {len(other)} prompts as another number of tokens")
        same = _unsampled(good) if self.temperature > 0 else 0
        if same:
            notes.append(f"wrote one text with all seeds of {same} prompts: it may not sample")
        value = model.get("perplexity")
        if value and value > _BROKEN * self._best_perplexity:
            notes.append("garbage: its perplexity is far from the best")
        if model.get("reason"):
            notes.append(f"perplexity not measured: {model['reason']}")
        return notes

    def best(self, rows: Sequence[Row]) -> list[Row]:
        """Return the fastest row of each peer, of those with the most runs.

        Plain decoding counts as well: sampled, it may be a peer's fastest way. A way that only took
        part in the trial has few runs, which are no measure of it.
        """
        found: dict[str, Row] = {}
        peers = {entrant.name: entrant.peer.NAME for entrant in self._entrants}
        for row in rows:
            if row["tokens_per_second"] is not None:
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
        """Return how much faster a way is than another, run by run.

        Machines drift, so only runs of one session are compared; None if there are none.
        """
        return _ratio(self._pairs(kind, way, other))


def _ratio(pairs: Sequence[tuple[Run, Run]]) -> Spread | None:
    return spread(
        (a["digest"], rate(a) / rate(b)) for a, b in pairs if a["session"] == b["session"]
    )


def _worst(pairs: Sequence[tuple[Run, Run]]) -> float | None:
    """Return the lowest ratio of a prompt; of several seeds, their mean."""
    ratios: dict[str, list[float]] = {}
    for a, b in pairs:
        if a["session"] == b["session"]:
            ratios.setdefault(a["digest"], []).append(rate(a) / rate(b))
    return min(map(fmean, ratios.values()), default=None)


def _tokens_per_pass(runs: Sequence[Run]) -> float | None:
    """Return the tokens of a pass of the target, its own included; None if nobody counts."""
    counted = [run for run in runs if run.get("accepted_tokens") is not None]
    passes = sum(run.get("target_passes") or _passes(run) for run in counted)
    return sum(run["decoded"] + 1 for run in counted) / passes if passes else None


def _passes(run: Run) -> int:
    return int(run["decoded"] + 1 - run["accepted_tokens"])


def _acceptance(runs: Sequence[Run]) -> float | None:
    """Return the share of drafted tokens that were accepted; None if none were drafted."""
    drafted = sum(run.get("drafted_tokens") or 0 for run in runs)
    return sum(run.get("accepted_tokens") or 0 for run in runs) / drafted if drafted else None


def _spread(runs: Sequence[Run], name: str) -> Spread | None:
    """Return the spread of a figure that some runs may lack."""
    return spread((run["digest"], run[name]) for run in runs if run.get(name) is not None)


def _unsampled(runs: Sequence[Run]) -> int:
    """Return how many prompts have several runs, all with one text."""
    texts: dict[str, list[Any]] = {}
    for run in runs:
        texts.setdefault(run["digest"], []).append(run["written"])
    return sum(len(some) > 1 and all(one == some[0] for one in some) for some in texts.values())


def _same(one: Run, other: Run) -> bool:
    """Return whether two runs wrote the same; a text may end a few tokens after the other."""
    written = one["written"], other["written"]
    if not all(isinstance(some, str) for some in written):
        return bool(written[0] == written[1])
    shorter, longer = sorted(written, key=len)
    return bool(longer.startswith(shorter))


def _rank(row: Row) -> tuple[int, float]:
    return row["runs"], row["tokens_per_second"].middle


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "way": lambda row: str(row["way"]),
    "tokens/s": lambda row: _cell(row["tokens_per_second"]),
    "over its plain": lambda row: _cell(row["over_plain"]),
    "worst": lambda row: _cell(row["worst"]),
    "tokens/pass": lambda row: _cell(row["tokens_per_pass"]),
    "accepted": lambda row: _cell(row["acceptance"]),
    "prompt s": lambda row: _cell(row["prompt_s"]),
    "processor s/token": lambda row: _cell(row["processor_s_per_token"]),
    "J/token": lambda row: _cell(row["joules_per_token"]),
    "perplexity": lambda row: _cell(row["perplexity"]),
    "MB": lambda row: _cell(row["weight_bytes"] and row["weight_bytes"] / 1e6),
    "repeats": lambda row: _cell(row["repeated_8_grams"]),
    "text as plain": lambda row: (
        "" if row["compared"] is None else f"{row['same']} of {row['compared']}"
    ),
    "prompts": lambda row: str(row["prompts"]),
    "runs": lambda row: str(row["runs"]),
}


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table and of its notes, each note once with its ways.

    A column that is blank in every row is left out.
    """
    columns = {name: [cell(row) for row in rows] for name, cell in _COLUMNS.items()}
    filled = [[name, *column] for name, column in columns.items() if any(column) or not rows]
    widths = [max(map(len, column)) for column in filled]
    cells = list(zip(*filled, strict=True))
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
    return "" if value is None else str(value) if isinstance(value, Spread) else short(value)
