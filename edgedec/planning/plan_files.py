"""Keeps decisions in files, which are read as untrusted input."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from edgedec._support.atomic import write_json
from edgedec._support.fields import from_json, printable, to_json
from edgedec.decoding import drafting
from edgedec.errors import PlanError, RuntimeUnavailable
from edgedec.hardware import machine
from edgedec.loading.sources import Models
from edgedec.profiling.store import Identity, identity
from edgedec.records.place import Place
from edgedec.records.plan import OVERLAPPED, SCHEDULES, SCHEMA, Decision, Plan
from edgedec.records.workload import LEAST_CONTEXT

_MOST_BYTES = 8 << 20
_ANEW = "make one with `edgedec plan --out FILE`"
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
    decision = read(path)
    check(decision, identity(models), path)
    return decision


def read(path: Path, *, advice: str = _ANEW) -> Decision:
    """Read a stored decision, whatever bundle and machine it is for.

    Args:
        path: the file.
        advice: what to do if it cannot be used, for the end of the message; may be empty.

    Raises:
        PlanError: no such file, or it is damaged or written by another version.

    """
    try:
        return _read(path)
    except PlanError as error:
        raise _refusal(str(error), advice) from None


def _refusal(why: str, advice: str) -> PlanError:
    """Return the error in one line, without control characters that the file may contain."""
    return PlanError(printable(f"{why}: {advice}" if advice else why))


def _read(path: Path) -> Decision:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PlanError(f"plan {path} cannot be read ({error.strerror or error})") from None
    if len(data) > _MOST_BYTES:
        raise PlanError(f"plan {path} is larger than {_MOST_BYTES >> 20} MiB")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise PlanError(f"plan {path} is damaged: it is not JSON") from None
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != SCHEMA:
        raise PlanError(f"plan {path}: expected a plan of version {SCHEMA}, found {found!r:.40}")
    try:
        decision = from_json(Decision, raw, f"plan {path}", PlanError)
    except RecursionError:
        raise PlanError(f"plan {path} is damaged") from None
    wrong = ""
    if not LEAST_CONTEXT <= decision.max_context <= _MOST_CONTEXT:
        wrong = f"max_context is {decision.max_context!r:.20}"
    for one in (decision.chosen.plan, *decision.fallbacks):
        wrong = wrong or _wrong_plan(one)
    if wrong:
        raise PlanError(f"plan {path} is damaged: {wrong}")
    return decision


def check(decision: Decision, now: Identity, path: Path, *, advice: str = _ANEW) -> None:
    """Refuse a decision that was made for another machine or bundle.

    Args:
        decision: as read.
        now: this machine and bundle.
        path: the file that it was read from.
        advice: as for ``read``.

    Raises:
        PlanError: names the difference.

    """
    differs = machine.difference(decision.machine, now.machine)
    if differs:
        raise _refusal(f"plan {path} is for another machine: {differs[:_LONGEST_TEXT]}", advice)
    if decision.bundle != now.bundle:
        raise _refusal(
            f"plan {path} is for other models: expected hash {now.bundle[:12]}, found"
            f" {decision.bundle[:12]!r}",
            advice,
        )


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
