"""Stores the last plan made for a bundle on this machine, for the next time it is opened."""

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
_SUFFIX = ".plan.json"


def any_there() -> bool:
    """Return whether any plan is stored; a cheap check."""
    try:
        return any(store.folder().glob(f"*{_SUFFIX}"))
    except OSError:
        return False


def remember(decision: Decision, of: Identity) -> bool:
    """Store a decision in place of an earlier one; False if nothing can be stored."""
    from edgedec.planning import plan_files

    try:
        file = _file(of)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        plan_files.save(decision, file)
    except (OSError, PlanError):
        return False
    return True


def is_kept(of: Identity) -> bool:
    """Return whether a plan for these models is stored here, valid or stale."""
    try:
        return _file(of).is_file()
    except OSError:
        return False


def forget(of: Identity) -> bool:
    """Delete the stored plan; False if there is none."""
    try:
        _file(of).unlink()
    except FileNotFoundError:
        return False
    return True


def recall(target: str | Path, draft: Path | None) -> Decision | None:
    """Return the stored decision if it is still valid; otherwise log a warning, once.

    Raises:
        BundleError: no such bundle, or it is damaged.

    """
    from edgedec.loading.sources import Models
    from edgedec.planning import plan_files
    from edgedec.profiling.store import identity

    now = identity(Models.find(target, draft))
    try:
        file = _file(now)
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
            forget(now)
        return None
    return decision


def _file(of: Identity) -> Path:
    return store.file_of(of).with_suffix(_SUFFIX)
