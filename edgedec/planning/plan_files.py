"""Keeps decisions in files, which are read as untrusted input."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgedec._support.atomic import write_json
from edgedec._support.fields import from_json, printable, to_json
from edgedec._support.kept import Unusable, read_object
from edgedec.decoding import drafting
from edgedec.errors import PlanError, RuntimeUnavailable
from edgedec.hardware import machine
from edgedec.loading.sources import Models
from edgedec.profiling.store import Identity, identity
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, SCHEDULES, SCHEMA, Decision, Plan
from edgedec.records.workload import LEAST_CONTEXT

# Upper bounds of numbers in a plan file.
_MOST_THREADS, _MOST_CORES, _MOST_DRAFTED, _MOST_CONTEXT = 1024, 4096, 999, 1 << 31
_MOST_BYTES_HELD = 1 << 60
_LONGEST_NAME, _LONGEST_TEXT = 80, 240


def save(decision: Decision, path: Path) -> None:
    """Write a decision as JSON, atomically.

    Raises:
        PlanError: it cannot be written, or the path is not a plain file.

    """
    check_out(path)
    try:
        write_json(path, to_json(decision), indent=1)
    except OSError as error:
        raise PlanError(
            f"{path} cannot be written: {error.strerror or error}: give another --out"
        ) from None


def check_out(path: Path) -> None:
    """Refuse to replace a link, a device, a pipe or a folder.

    Raises:
        PlanError: the path is one.

    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return  # nothing is there, or writing will report the problem
    if not stat.S_ISREG(found.st_mode):
        kind = "a link" if stat.S_ISLNK(found.st_mode) else "not a plain file"
        raise PlanError(f"{printable(str(path))} is {kind}, not replaced: give another --out")


def load(path: Path, models: Models) -> Decision:
    """Read a stored decision for these models on this machine.

    Raises:
        PlanError: no such file, or it is damaged or for another version, machine or bundle.

    """
    try:
        decision = read(path)
        check(decision, identity(models), f"plan {path}")
    except PlanError as error:
        raise PlanError(f"{error}: make one with `edgedec plan --out FILE`") from None
    return decision


def read(path: Path) -> Decision:
    """Read a stored decision, whatever bundle and machine it is for.

    Raises:
        PlanError: no such file, or it is damaged or written by another version.

    """
    try:
        raw = read_object(path)
    except Unusable as error:
        raise PlanError(printable(f"plan {path} {error}")) from None
    except OSError as error:
        raise PlanError(printable(f"plan {path} cannot be read ({error.strerror})")) from None
    return decision_of(raw, f"plan {path}")


def decision_of(raw: Mapping[str, Any], where: str) -> Decision:
    """Return the decision that ``to_json`` was given; ``where`` names it in messages.

    Raises:
        PlanError: it is damaged or written by another version.

    """
    where, found = printable(where), raw.get("schema")
    if found != SCHEMA:
        raise PlanError(f"{where}: expected a plan of version {SCHEMA}, found {found!r:.40}")
    try:
        decision = from_json(Decision, raw, where, PlanError)
    except RecursionError:
        raise PlanError(f"{where} is damaged") from None
    wrong = ""
    if not LEAST_CONTEXT <= decision.max_context <= _MOST_CONTEXT:
        wrong = f"max_context is {decision.max_context!r:.20}"
    for one in (decision.chosen.plan, *decision.fallbacks):
        wrong = wrong or _wrong_plan(one)
    if wrong:
        raise PlanError(printable(f"{where} is damaged: {wrong}"))
    return decision


def check(decision: Decision, now: Identity, where: str) -> None:
    """Refuse a decision that was made for another machine or bundle.

    Raises:
        PlanError: names the difference, in one line.

    """
    differs, why = machine.difference(decision.machine, now.machine), ""
    if differs:
        why = f"is for another machine: {differs[:_LONGEST_TEXT]}"
    elif decision.bundle != now.bundle:
        why = (
            f"is for other models: expected hash {now.bundle[:12]}, found {decision.bundle[:12]!r}"
        )
    if why:
        raise PlanError(printable(f"{where} {why}"))


def _wrong_plan(plan: Plan) -> str:
    """Return why a plan from a file is invalid (an unknown name, an impossible number), or ""."""
    if not drafting.known(plan.drafter):
        return drafting.no_drafter(plan.drafter[:_LONGEST_NAME], "none of that name here")
    try:
        needs_model = drafting.info(plan.drafter).needs_model
    except RuntimeUnavailable as error:
        return str(error)
    if plan.schedule not in SCHEDULES:
        return f"no schedule {plan.schedule!r:.40}"
    if needs_model != (plan.draft is not None):
        return f"drafter {plan.drafter!r} and where its model runs do not go together"
    if plan.schedule == OVERLAPPED and plan.draft is None:
        return f"drafter {plan.drafter!r} has no model that could run while the target verifies"
    length, depth = plan.draft_length or 0, 1 if plan.depth is None else plan.depth
    if not 0 <= length <= _MOST_DRAFTED or not 1 <= depth <= _MOST_DRAFTED:
        return f"drafts of {length!r:.20} tokens and depth {depth!r:.20}"
    return _wrong_place(plan.target) or (_wrong_place(plan.draft) if plan.draft else "")


def _wrong_place(place: Place) -> str:
    names = (place.format, place.device, *([] if place.provider is None else [place.provider]))
    for name in names:
        if not name or not name.isprintable() or len(name) > _LONGEST_NAME:
            return f"invalid name of a place: {name!r:.40}"
    if not 0 <= place.threads <= _MOST_THREADS:
        return f"a place has {place.threads!r:.20} threads"
    if not 1 <= (place.weight_memory or 1) <= _MOST_BYTES_HELD:
        return f"a place holds {place.weight_memory!r:.30} bytes of weights"
    cores = (0,) if place.cores is None else place.cores
    if not 1 <= len(cores) <= _MOST_THREADS or not 0 <= min(cores) <= max(cores) < _MOST_CORES:
        return "a place has invalid core numbers"
    return ""
