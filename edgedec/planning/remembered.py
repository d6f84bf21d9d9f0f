"""Stores the last plans made for a bundle on this machine, for the next time it is opened.

One was made by ``edgedec plan``, the other to open the bundle within a memory limit.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from edgedec._support.fields import to_json
from edgedec._support.kept import PLAN, Record, Unusable, any_record
from edgedec.errors import PlanError
from edgedec.hardware.machine import difference
from edgedec.loading.sources import Models
from edgedec.profiling.store import Identity, identity, key_of
from edgedec.records.plan import Decision

_log = logging.getLogger("edgedec")


def _record(of: Identity, limited: bool = False) -> Record:
    return Record(PLAN, key_of(of) + (".limited" if limited else ""))


def remember(decision: Decision, of: Identity, *, limited: bool = False) -> bool:
    """Store a decision in place of an earlier one; False if nothing can be stored.

    Args:
        decision: the plan and its fallbacks.
        of: the models and the machine.
        limited: it was made for a memory limit given when the bundle was opened.

    """
    what = f"{decision.models}: {decision.chosen.plan.label}, made on {decision.texts}"
    return _record(of, limited).write(to_json(decision), what)


def keep(decision: Decision, of: Identity) -> str:
    """Store a plan for the next time its models are opened; return why not, or nothing.

    A plan that was measured on a busy machine is stored, since many machines never are quiet, but
    not in place of a valid one that was measured on a quiet machine.
    """
    if decision.untried:
        return "no plan that drafts could be measured"
    if decision.disturbed:
        stored = None
        with suppress(PlanError):
            stored = _stored(_record(of), of)
        if stored is not None and not stored.disturbed:
            return (
                f"the machine was busy ({decision.disturbed}), and the plan stored before was"
                " measured while it was quiet"
            )
    remember(decision, of)
    return ""


def is_kept(of: Identity) -> bool:
    """Return whether a plan for these models is stored here, valid or stale."""
    try:
        return _record(of).file.is_file()
    except OSError:
        return False


def forget(of: Identity) -> bool:
    """Delete the stored plans; False if there are none."""
    return sum(_record(of, limited).remove() for limited in (False, True)) > 0


def recall(
    models: Models, now: Identity | None = None, *, limited: bool = False
) -> Decision | None:
    """Return the stored decision if it is still valid; otherwise log a warning, once.

    Args:
        now: its identity; None computes it.
        limited: see ``remember``.

    Raises:
        BundleError: a file cannot be read.

    """
    if not any_record(PLAN):  # a cheap check
        return None
    now = now or identity(models)
    record = _record(now, limited)
    try:
        decision = _stored(record, now)
        changed = decision and difference(decision.versions, now.versions)
        if changed:
            raise PlanError(f"runtimes changed since it was made: {changed}")
    except PlanError as error:
        _log.warning(
            "the plan of %s is not used (%s): make one with `edgedec plan`", models.target, error
        )
        with suppress(OSError):
            record.remove()
        return None
    return decision


def _stored(record: Record, now: Identity) -> Decision | None:
    """Return the decision of a record, which is for this machine and these models; None if none."""
    from edgedec.planning import plan_files

    try:
        raw = record.read()
    except Unusable as error:
        raise PlanError(f"plan {record.file} {error}") from None
    if raw is None:
        return None
    decision = plan_files.decision_of(raw, f"plan {record.file}")
    plan_files.check(decision, now, f"plan {record.file}")
    return decision
