"""Writes the tables of docs/measured/published.md from the record of the section ``published``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

RECORDS = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "published.jsonl"
NONE = "Not measured yet: `python -m benchmarks published --prompts 1` writes the record."
Row = Mapping[str, Any]


def rows(model: str) -> list[Row]:
    """Return the latest figures of a model by temperature, category and way."""
    if not RECORDS.is_file():
        return []
    found: dict[tuple[Any, ...], Row] = {}
    for line in RECORDS.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "summary" and row["model"] == model:
            found[row["temperature"], row["text"], row["way"]] = row
    return [row for row in found.values() if row["runs"]]


def tables(model: str) -> str:
    """Return a model's tables: all texts, then speed by category, for each temperature."""
    found = rows(model)
    parts = []
    for temperature in dict.fromkeys(row["temperature"] for row in found):
        there = [row for row in found if row["temperature"] == temperature]
        how = "Greedily" if temperature == 0 else f"At temperature {temperature:g}"
        parts.append(f"{how}, all categories:\n\n{_all_texts(there)}")
        speeds = "speed over its own plain decoding (worst prompt)"
        parts.append(f"{how}, {speeds}:\n\n{_speeds(there)}")
    return "\n\n".join(parts) or NONE


def _all_texts(rows: Sequence[Row]) -> str:
    """Return a line for each way: medians over categories, and sums."""
    head = ["way", "tokens/s", "over its plain", "worst prompt", "tokens a pass", "accepted",
            "texts as plain"]  # fmt: skip
    lines = []
    for way, own in _by(rows, "way").items():
        same = [row for row in own if row["compared"]]
        lines.append([
            way,
            _middle(row["tokens_per_second"]["middle"] for row in own),
            _middle(row["over_plain"]["middle"] for row in own if row["over_plain"]),
            _cell(min((row["worst"] for row in own if row["worst"]), default=None)),
            _middle(row["tokens_per_pass"] for row in own if row["tokens_per_pass"]),
            _middle(row["acceptance"] for row in own if row["acceptance"] is not None),
            f"{sum(row['same'] for row in same)} of {sum(row['compared'] for row in same)}"
            if same else "",
        ])  # fmt: skip
    return _table(head, lines)


def _speeds(rows: Sequence[Row]) -> str:
    """Return a line for each way that drafts, a column for each category."""
    kinds = list(_by(rows, "text"))
    lines = []
    for way, own in _by(rows, "way").items():
        cells = {row["text"]: row for row in own if row["over_plain"]}
        if cells:
            lines.append([way, *(_ratio(cells.get(kind)) for kind in kinds)])
    return _table(["way", *kinds], lines)


def _by(rows: Iterable[Row], name: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def _ratio(row: Row | None) -> str:
    return "" if row is None else f"{row['over_plain']['middle']:.2f} ({row['worst']:.2f})"


def _middle(values: Iterable[float]) -> str:
    found = list(values)
    return _cell(median(found)) if found else ""


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    every = [head, ["---"] * len(head), *lines]
    rows = ("".join(f"| {cell} " if cell else "| " for cell in cells) for cells in every)
    return "\n".join(f"{row}|" for row in rows)


def about() -> str:
    """Return the machine and the date of the record."""
    if not RECORDS.is_file():
        return NONE
    lines = map(json.loads, RECORDS.read_text("utf-8").splitlines())
    machines = [line for line in lines if line["kind"] == "machine"]
    return "\n".join(
        f"- {line['time'][:10]}: {line['cpu']}, {line['settings']['threads']} threads,"
        f" {line['settings']['tokens']} tokens a text."
        for line in machines
    )


def skipped() -> str:
    """Return what could not be measured, with the reasons."""
    if not RECORDS.is_file():
        return NONE
    lines = map(json.loads, RECORDS.read_text("utf-8").splitlines())
    reasons = {
        (line.get("model", ""), line["name"]): line["reason"]
        for line in lines
        if line["kind"] == "skipped"
    }
    told = "\n".join(f"- {model} {name}: {why}" for (model, name), why in reasons.items())
    return told or "Nothing."


PARTS = {
    "machine": about,
    "SmolLM2": lambda: tables("smollm2"),
    "Gemma 3": lambda: tables("gemma3"),
    "skipped": skipped,
}
