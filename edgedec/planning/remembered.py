"""Stores the last plans made for a bundle on this machine, for the next time it is opened.

One was made by ``edgedec plan``, the other to open the bundle within a memory limit.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from edgedec.errors import PlanError
from edgedec.hardware.machine import difference
from edgedec.profiling import store
from edgedec.profiling.store import Identity
from edgedec.records.plan import Decision

_log = logging.getLogger("edgedec")
_SUFFIX, _LIMITED = ".plan.json", ".limited.plan.json"


def any_there() -> bool:
    """Return whether any plan is stored; a cheap check."""
    try:
        return any(store.folder().glob(f"*{_SUFFIX}"))
    except OSError:
        return False


def remember(decision: Decision, of: Identity, *, limited: bool = False) -> bool:
    """Store a decision in place of an earlier one; False if nothing can be stored.

    Args:
        decision: the plan and its fallbacks.
        of: the models and the machine.
        limited: it was made for a memory limit given when the bundle was opened.

    """
    from edgedec.planning import plan_files

    try:
        file = _file(of, limited)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        plan_files.save(decision, file)
    except (OSError, PlanError):
        return False
    return True


def keep(decision: Decision, of: Identity) -> str:
    """Store a plan for the next time its models are opened; return why not, or nothing.

    A plan that was measured on a busy machine is stored, since many machines never are quiet, but
    not in place of a valid one that was measured on a quiet machine.
    """
    if decision.untried:
        return "no plan that drafts could be measured"
    if decision.disturbed and _has_quiet(of):
        return (
            f"the machine was busy ({decision.disturbed}), and the plan stored before was measured"
            " while it was quiet"
        )
    remember(decision, of)
    return ""


def _has_quiet(of: Identity) -> bool:
    """Return whether a valid plan is stored that was measured on a quiet machine."""
    from edgedec.planning import plan_files

    try:
        file = _file(of)
        stored = plan_files.read(file, advice="")
        plan_files.check(stored, of, file, advice="")
    except (OSError, PlanError):
        return False
    return not stored.disturbed


def is_kept(of: Identity) -> bool:
    """Return whether a plan for these models is stored here, valid or stale."""
    try:
        return _file(of).is_file()
    except OSError:
        return False


def forget(of: Identity) -> bool:
    """Delete the stored plans; False if there are none."""
    found = False
    for limited in (False, True):
        with contextlib.suppress(FileNotFoundError):
            _file(of, limited).unlink()
            found = True
    return found


def recall(
    target: str | Path, draft: Path | None, now: Identity | None = None, *, limited: bool = False
) -> Decision | None:
    """Return the stored decision if it is still valid; otherwise log a warning, once.

    Args:
        target: the bundle or file, for messages.
        draft: the user's own draft model.
        now: the identity of both; None computes it.
        limited: see ``remember``.

    Raises:
        BundleError: no such bundle, or it is damaged.

    """
    from edgedec.loading.sources import Models
    from edgedec.planning import plan_files
    from edgedec.profiling.store import identity

    now = identity(Models.find(target, draft)) if now is None else now
    try:
        file = _file(now, limited)
        if not file.is_file():
            return None
    except OSError:
        return None
    try:
        decision = plan_files.read(file, advice="")
        plan_files.check(decision, now, file, advice="")
        changed = difference(decision.versions, now.versions)
        if changed:
            raise PlanError(f"runtimes changed since it was made: {changed}")
    except PlanError as error:
        _log.warning("the plan of %s is not used (%s): make one with `edgedec plan`", target, error)
        with contextlib.suppress(OSError):
            file.unlink()
        return None
    return decision


def _file(of: Identity, limited: bool = False) -> Path:
    return store.file_of(of).with_suffix(_LIMITED if limited else _SUFFIX)
