"""Makes an HTML page of a comparison's records: loads nothing, runs nothing, escapes all text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.report import figures
from edgedec._support.atomic import replacing
from edgedec._version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

Facts = Mapping[str, Any]
# Most groups in the plot of speeds, for readability; the table has all of them.
_GROUPS = 12
_DEEPEST = 12


def write(records: Path, file: Path) -> None:
    """Write the page of a comparison from its JSON lines.

    Raises:
        OSError: the page cannot be written; an existing one is unchanged.
        RuntimeUnavailable: matplotlib is not installed.

    """
    with records.open(encoding="utf-8") as lines:
        page = html([json.loads(line) for line in lines])
    with replacing(file) as stream:
        # A path from another locale may contain bytes that UTF-8 cannot encode.
        stream.write(page.encode("utf-8", "replace"))


def html(records: Sequence[Facts]) -> str:
    """Return the page of these records."""
    figures.check()
    recorded = _Recorded(records)
    return template("page.html").render(
        recorded=recorded,
        version=__version__,
        plots=_plots(recorded),
        text=shown(recorded.generation) if recorded.generation else None,
    )


def template(name: str) -> Template:
    """Return a template of this folder, which escapes all text."""
    from jinja2 import Environment, FileSystemLoader

    here = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)


class _Recorded:
    """A comparison's records by kind, and figures derived from them."""

    def __init__(self, records: Sequence[Facts]) -> None:
        def some(kind: str) -> list[Facts]:
            return [one for one in records if one["kind"] == kind]

        self.machine = some("machine")[0]
        self.about: Facts = next(iter(some("about")), {})
        self.runs = some("run")
        self.summaries = some("summary")
        self.categories = some("category")
        self._category = {one["prompt"]: one["category"] for one in some("question")}
        self.curves = [one for one in some("curve") if "seconds" in one]
        self.left_out = [one for one in some("curve") if "left_out" in one]
        self.predictions = some("prediction")
        self.generation: Facts | None = next(iter(some("generation")), None)
        self.baseline = self.summaries[0]["baseline"]
        self.others = [
            one["candidate"] for one in self.summaries if one["candidate"] != self.baseline
        ]
        # The default, since the best of those compared would be selected by this same measurement.
        self.shown = next(
            (one for one in self.summaries if one["candidate"] == "auto"), self.summaries[-1]
        )

    @property
    def texts(self) -> int:
        """Number of texts that were decoded speculatively."""
        return sum(len(self._of(name)) for name in self.others)

    @property
    def estimated(self) -> int:
        """Number of texts with an estimate of their own speed-up."""
        return sum(len(pairs) for pairs in self.estimates.values())

    @property
    def groups(self) -> dict[str, dict[str, list[float]]]:
        """Speed-ups by group and candidate, one for each prompt that all of them decoded."""
        found: dict[str, dict[str, list[float]]] = {}
        for _, group, seconds in self.seconds():
            own = found.setdefault(group, {name: [] for name in self.others})
            for name in self.others:
                own[name].append(seconds[self.baseline] / seconds[name])
        return found

    def seconds(self) -> list[tuple[str, str, dict[str, float]]]:
        """Return each prompt, its group, and its seconds a token by candidate."""
        runs: dict[str, dict[str, list[float]]] = {}
        groups = {}
        for run in self.runs:
            groups[run["prompt"]] = self._category.get(run["prompt"], "")
            runs.setdefault(run["prompt"], {}).setdefault(run["candidate"], []).append(
                run["tpot_s"]
            )
        found = []
        for prompt, own in runs.items():
            medians = {name: median(values) for name, values in own.items()}
            if len(medians) == len(self.others) + 1 and all(medians.values()):
                found.append((prompt, groups[prompt], medians))
        return found

    @property
    def survival(self) -> dict[str, list[float]]:
        """Share of rounds with at least n accepted tokens, n = 1, 2, ..., by candidate."""
        return {name: _survival(self._of(name)) for name in self.others}

    @property
    def estimates(self) -> dict[str, list[tuple[float, float]]]:
        """Each text's estimate of its own speed-up, and the measured one, by candidate."""
        measured = {prompt: seconds for prompt, _, seconds in self.seconds()}
        return {
            name: [
                (
                    run["speedup_estimate"],
                    measured[run["prompt"]][self.baseline] / measured[run["prompt"]][name],
                )
                for run in self._of(name)
                if run.get("speedup_estimate") and run["prompt"] in measured
            ]
            for name in self.others
        }

    @property
    def planned(self) -> list[tuple[str, float, float]]:
        """Candidate, the speed-up that the planner predicted, and the measured one."""
        measured = {one["candidate"]: one["speedup"] for one in self.summaries}
        return [
            (name, one["speedup"], measured[name])
            for one in self.predictions
            if not one["chosen"]
            for name in one["drafters"]
            if name in self.others
        ]

    @property
    def marks(self) -> list[tuple[str, float, str]]:
        """The plan's choice, or the mean of `auto`, on the curve of its format."""
        for one in self.predictions:
            if one["chosen"] and one["draft_length"] is not None:
                rows = one["draft_length"] + 1
                return [(one["format"], rows, f"plan: {one['drafters'][0]}, {rows} rows")]
        auto = [run for run in self._of("auto") if run["target_passes"]]
        if not auto:
            return []
        passes = sum(run["target_passes"] for run in auto)
        rows = 1 + sum(run["drafted_tokens"] for run in auto) / passes
        who = "plan" if self.predictions else "auto"
        label = f"{who}: {rows:.1f} rows on average"
        return [(auto[0]["plan"].get("format", "onnx"), rows, label)]

    @property
    def chosen(self) -> Facts | None:
        """The planner's choice, with what it predicted."""
        return next((one for one in self.predictions if one["chosen"]), None)

    def _of(self, name: str) -> list[Facts]:
        return [run for run in self.runs if run["candidate"] == name]

    def rate(self, name: str) -> float:
        """Return the share of a candidate's drafted tokens that were accepted."""
        drafted = sum(run["drafted_tokens"] for run in self._of(name))
        return sum(run["accepted_tokens"] for run in self._of(name)) / drafted if drafted else 0.0

    def block(self, name: str) -> float:
        """Return a candidate's mean tokens per target pass."""
        passes = sum(run["target_passes"] for run in self._of(name))
        return sum(run["tokens"] for run in self._of(name)) / passes if passes else 0.0


def _survival(runs: Sequence[Facts]) -> list[float]:
    counts: dict[int, int] = {}
    for run in runs:
        for length, rounds in run["accepted_lengths"].items():
            counts[int(length)] = counts.get(int(length), 0) + rounds
    total = sum(counts.values())
    deepest = min(max(counts, default=0), _DEEPEST)
    return [
        sum(rounds for length, rounds in counts.items() if length >= depth) / total
        for depth in range(1, deepest + 1)
    ]


def _plots(recorded: _Recorded) -> dict[str, Any]:
    """Return the plots that these records allow, by name, safe to embed in a page."""
    from markupsafe import Markup

    groups, estimates = recorded.groups, recorded.estimates
    found = {}
    if groups:
        found["speeds"] = figures.speeds(dict(list(groups.items())[:_GROUPS]))
    if any(recorded.survival.values()):
        found["accepted"] = figures.accepted(recorded.survival)
    if recorded.curves:
        found["costs"] = figures.costs(recorded.curves, recorded.marks)
    if any(estimates.values()) or recorded.planned:
        found["predicted"] = figures.predicted(estimates, recorded.planned)
    if recorded.generation:
        sides = recorded.generation["sides"]
        shown = {"plain": sides["none"], "auto": sides["auto"]}
        found["progress"] = figures.progress(shown)
        # Older records have none.
        if all("memory_bytes" in one for side in shown.values() for one in side["rounds"]):
            found["memory"] = figures.memory(shown)
    # matplotlib escapes the names in the plots.
    return {name: Markup(svg) for name, svg in found.items()}


# -- a recorded generation as accepted, rejected and target texts by round ----------------------

# Line ends and tabs of rejected tokens are shown as symbols, so that the text keeps its layout.
_SIGNS = {"\n": "\N{RETURN SYMBOL}", "\t": "\N{RIGHTWARDS ARROW TO BAR}", "\r": ""}
# Most characters shown of a prompt's end.
_LONGEST = 1200


def shown(generation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt, and the rounds with their tokens; all as plain text, to be escaped."""
    rounds = []
    counts = dict.fromkeys(("accepted", "own", "rejected"), 0)
    for number, one in enumerate(generation["sides"]["auto"]["rounds"], 1):
        rejected = ["".join(_SIGNS.get(c, c) for c in text) for text in one["rejected"]]
        counts["accepted"] += len(one["accepted"])
        counts["rejected"] += len(rejected)
        counts["own"] += one["emitted"] - len(one["accepted"])
        rounds.append(
            {
                "accepted": one["accepted"],
                "rejected": rejected,
                "own": one["own"],
                "about": _about(number, one),
            }
        )
    prompt = generation["text"]
    if len(prompt) > _LONGEST:
        prompt = f"\N{HORIZONTAL ELLIPSIS}{prompt[-_LONGEST:]}"
    return {"name": generation["prompt"], "prompt": prompt, "rounds": rounds, **counts}


def _about(number: int, one: Mapping[str, Any]) -> str:
    """Describe a round in a line."""
    drafted = len(one["accepted"]) + len(one["rejected"])
    if not drafted:
        return f"round {number}: nothing drafted, at {1000 * one['seconds']:.0f} ms"
    return (
        f"round {number}: {len(one['accepted'])} of {drafted} drafted tokens accepted"
        f" ({one['source']}), at {1000 * one['seconds']:.0f} ms"
    )
