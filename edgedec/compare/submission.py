"""Measures plain decoding and ``auto`` as a file that strangers can compare: ``bench --submit``.

``RULES`` say how; ``read`` holds a file of somebody else to those that can be checked.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from edgedec._support.fields import Fields, json_object, one_line
from edgedec._support.files import read_regular
from edgedec.compare import evidence
from edgedec.compare.drafters import PLAIN, DrafterTask, about, entrants_of
from edgedec.compare.interleaved import Candidate, OnProgress, Progress
from edgedec.decoding.drafting import AUTO
from edgedec.errors import EdgedecError, InputError
from edgedec.hardware import contention
from edgedec.hardware.strain import power_supply, strain
from edgedec.pipeline import GenerateOptions, Generation, Pipeline

FORM = 1
LEAST_REPEATS = 3
SIDES = (PLAIN, AUTO)
RULES = (
    "Plain decoding and auto are open in one process and take turns; who goes first rotates.",
    "A ratio compares two figures of one file. Ratios across files or sessions are invalid.",
    "Each text is decoded at least three times by each side, and the median counts.",
    "Cold and warm are apart: opening and the first text stand alone and count in no median.",
    "Failed rows stay, with what went wrong; a prompt with one is not compared, and is counted.",
    "Both sides have the same prompts, options and seed, and go on past an end of text.",
    "Seconds per token are those after the first round, and tokens those that were written.",
    "The model is named by the sha256 of every file of it, the prompts by one over all of them.",
    "Heat, a lowered clock, the power supply and other programs' load are written down.",
    "Nothing is left out afterwards: every row is in the file, and the summary follows from them.",
)
_MAX_BYTES = 1 << 24
_MAX_ROWS = 100_000
Row = dict[str, Any]
Prompts = Sequence[tuple[str, Any]]


class _Submission(Fields):
    error = InputError


def submission(asked: DrafterTask, on_progress: OnProgress | None = None) -> dict[str, Any]:
    """Measure a model on this machine by the rules; failures while decoding become rows.

    Raises:
        InputError, BundleError, RuntimeUnavailable: as ``Pipeline.open``.

    """
    repeats = max(LEAST_REPEATS, asked.repeats)
    ways = entrants_of(asked)
    before, began = strain(), contention.usage()
    progress = Progress(on_progress)
    progress.expect(len(SIDES) * (1 + repeats * len(asked.prompts)))
    cold: list[Row] = []
    with ExitStack() as stack:
        sides: dict[str, Pipeline] = {}
        for name in SIDES:
            start = time.perf_counter()
            sides[name] = stack.enter_context(Pipeline.open(asked.bundle, ways[name]))
            opened = time.perf_counter() - start
            row, done = run(sides[name], name, asked.prompts[0], asked.options)
            cold.append({**row, "open_s": opened, "plan": done.plan if done else {}})
            progress.step()
        rows = take_turns(sides, asked.prompts, asked.options, repeats, progress)
    load = contention.by_others(began, contention.usage())
    path = str(asked.bundle)
    return {
        "submission": FORM,
        "issued": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "rules": list(RULES),
        "about": {**about(asked), "repeats": repeats, "seed": asked.options.sampling.seed},
        "machine": evidence.machine(),
        "state": {
            "before": asdict(before), "after": asdict(strain()), "power": power_supply(),
            "other_load": load,
        },
        "versions": evidence.versions({one["plan"].get("format", "onnx") for one in cold}),
        "program": evidence.program(),
        "files": evidence.files(path, asked.common.draft),
        "prompts_sha256": _digest(asked.prompts),
        "cold": cold,
        "rows": rows,
        "summary": summarised(rows),
    }  # fmt: skip


def _digest(prompts: Prompts) -> str:
    return hashlib.sha256(json.dumps([list(one) for one in prompts]).encode()).hexdigest()


def take_turns(
    sides: Mapping[str, Candidate[Any]],
    prompts: Prompts,
    options: GenerateOptions,
    repeats: int,
    progress: Progress,
) -> list[Row]:
    """Decode every prompt ``repeats`` times with each side in turn; return a row for each."""
    names, rows = list(sides), []
    for index, prompt in enumerate(prompts):
        texts: dict[str, Sequence[int]] = {}
        for repeat in range(repeats):
            first = (index + repeat) % len(names)
            for name in names[first:] + names[:first]:
                row, done = run(sides[name], name, prompt, options)
                if done is not None:
                    texts.setdefault(name, done.token_ids)
                rows.append({**row, "repeat": repeat})
                progress.step()
        same = None if len(texts) < len(names) else texts[PLAIN] == texts[AUTO]
        for row in rows[-repeats * len(names) :]:
            row["identical"] = same
    return rows


def run(
    side: Candidate[Any], name: str, prompt: tuple[str, Any], options: GenerateOptions
) -> tuple[Row, Generation | None]:
    """Decode one text; return its row, and what was written unless it failed."""
    row: Row = {"side": name, "prompt": prompt[0]}
    try:
        done = side.generate(prompt[1], options)
    except (EdgedecError, MemoryError) as error:
        return {**row, "error": one_line(str(error)) or type(error).__name__}, None
    return {**row, **_figures(done)}, done


def _figures(done: Generation) -> Row:
    metrics = done.metrics
    return {
        "tokens": metrics.emitted,
        "ttft_s": metrics.ttft_s,
        "tpot_s": metrics.tpot_s or None,  # a text of one round has none
        "total_s": metrics.ttft_s + metrics.decode_s,
        "drafted_tokens": metrics.drafted_tokens,
        "accepted_tokens": metrics.accepted_tokens,
    }


def summarised(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what follows from the rows: medians, and ratios of prompts without a failure."""
    runs: dict[str, dict[str, list[float | None]]] = {}
    for row in rows:
        runs.setdefault(row["prompt"], {name: [] for name in SIDES})[row["side"]].append(
            row.get("tpot_s")
        )
    seconds = {
        prompt: {name: median([one for one in own[name] if one is not None]) for name in SIDES}
        for prompt, own in runs.items()
        if all(len(own[name]) >= LEAST_REPEATS and None not in own[name] for name in SIDES)
    }
    ratios = [own[PLAIN] / own[AUTO] for own in seconds.values()]
    return {
        "prompts": len(runs),
        "compared": len(ratios),
        "failed_rows": sum("error" in row for row in rows),
        "tokens_per_second": {
            name: 1 / median(own[name] for own in seconds.values()) if seconds else None
            for name in SIDES
        },
        "median_ratio": median(ratios) if ratios else None,
        "worst_ratio": min(ratios, default=None),
        "identical": len({row["prompt"] for row in rows if row.get("identical") is True}),
    }


def read(file: Path) -> dict[str, Any]:
    """Read a submission of somebody else.

    Raises:
        InputError: it is not one, or breaks a rule that a file can show.

    """
    try:
        data = read_regular(file, _MAX_BYTES)
    except OSError as error:
        raise InputError(f"{file.name} cannot be read: {error.strerror or error}") from None
    raw = None if data is None else json_object(data)
    if raw is None:
        raise InputError(f"{file.name}: expected a JSON object of at most {_MAX_BYTES >> 20} MiB")
    fields = _Submission(raw, file.name)
    if fields.size("submission") != FORM:
        raise fields.wrong("submission", str(FORM))
    if fields.texts("rules") != RULES:
        raise fields.wrong("rules", "the ten rules of this edgedec")
    fields.line("issued")
    for name, keys in (("about", ("model", "sampling")), ("machine", ("system",))):
        inner = fields.object(name)
        for key in keys:
            inner.line(key)
    fields.object("machine").object("cpu").line("name")
    fields.object("versions").line("edgedec")
    fields.object("state")
    rows = list(_rows(fields))
    if raw.get("summary") != summarised(rows):
        raise fields.wrong("summary", "what follows from the rows")
    return raw


def _rows(fields: _Submission) -> Iterator[Row]:
    raw = fields.raw.get("rows")
    if not isinstance(raw, list) or not 1 <= len(raw) <= _MAX_ROWS:
        raise fields.wrong("rows", f"a list of 1 to {_MAX_ROWS} rows")
    for number, row in enumerate(raw):
        if not isinstance(row, dict):
            raise fields.wrong("rows", "a list of objects")
        one = _Submission(row, f"{fields.where}: row {number}")
        one.choice("side", SIDES)
        one.line("prompt")
        if "error" in row:
            one.line("error")
        elif row.get("tpot_s") is not None:
            value = row["tpot_s"]
            if type(value) not in (int, float) or not 0 < value < float("inf"):
                raise one.wrong("tpot_s", "seconds")
        yield row


def remarks(found: Mapping[str, Any]) -> list[str]:
    """Return what makes a submission's figures less certain, as its state says."""
    state = _Submission(found, "").object("state").raw
    said = []
    load = state.get("other_load")
    if isinstance(load, float) and load > contention.BUSY:
        said.append(f"other programs used {load:.0%}")
    for when in ("before", "after"):
        moment = state.get(when)
        if isinstance(moment, Mapping) and moment.get("slowed_by"):
            said.append(f"clock lowered by {one_line(str(moment['slowed_by']))} {when}")
    if state.get("power") == "battery":
        said.append("on battery")
    return said
