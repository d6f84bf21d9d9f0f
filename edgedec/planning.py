r"""From a bundle to a decision, and decisions kept in files.

::

    decision = plan("demo", Workload(prompt_tokens=200, new_tokens=100), memory=512_000_000)
    print(decision.chosen.plan.label, *decision.reasons, sep="\n")
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from edgedec import profiling
from edgedec.decoding import drafting
from edgedec.errors import PlanError
from edgedec.pair import every_format
from edgedec.placement import machine
from edgedec.placement.plan import OVERLAPPED, SCHEMA, SEQUENTIAL, Decision, Plan
from edgedec.placement.planner import decide
from edgedec.placement.store import Identity
from edgedec.placement.stored import from_json, to_json
from edgedec.placement.workload import Workload
from edgedec.profiling import OnProgress, ProfileOptions
from edgedec.profiling.identity import identity
from edgedec.simulation.predict import predict

_MOST_BYTES = 8 << 20
_ANEW = "make one with `edgedec plan --out FILE`"


def plan(
    bundle: str | Path,
    workload: Workload | None = None,
    *,
    memory: int | None = None,
    options: ProfileOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Decision:
    """Decide where a bundle's models run, who drafts and how much.

    What was measured before is used where it still holds; else it is measured now, which takes
    about a minute for small models.

    Args:
        bundle: a bundle's folder, ``demo``, or a GGUF file.
        workload: what is to be decoded; None is a prompt of 256 tokens and 128 new ones, greedily.
        memory: bytes for all that the plan holds; None is all this process could ever have.
        options: what to measure, where that is needed.
        on_progress: hears what is being measured.

    Raises:
        BundleError, InputError, ProfileError: see ``profiling.profile``.
        PlanError: there is no place where the target gives right numbers.
        MemoryBudgetError: nothing fits; names the smallest memory that something fits in.

    """
    measured = profiling.profile(bundle, options, on_progress)
    given = machine.memory().usable if memory is None else memory
    return decide(measured, workload or Workload(), given, predict)


def save(decision: Decision, path: Path) -> None:
    """Write a decision as JSON, in one move.

    Raises:
        PlanError: it cannot be written.

    """
    name = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(to_json(decision), stream, indent=1, allow_nan=False)
        os.replace(name, path)
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(OSError):
                Path(name).unlink()
        if isinstance(error, OSError):
            raise PlanError(
                f"{path} cannot be written: {error.strerror or error}: give another --out"
            ) from None
        raise


def load(path: Path, bundle: str | Path, draft_model: Path | None = None) -> Decision:
    """A stored decision, when it is for this bundle on this machine.

    Raises:
        PlanError: no such file, damaged, of another version, machine or bundle.
        BundleError: no such bundle, or damaged.

    """
    decision = read(path)
    check(decision, identity(bundle, draft_model, every_format(bundle, draft_model)), path)
    return decision


def read(path: Path) -> Decision:
    """A stored decision, whatever it is for.

    Raises:
        PlanError: no such file, damaged, or of another version.

    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise PlanError(
            f"plan {path} cannot be read ({error.strerror or error}): {_ANEW}"
        ) from None
    if len(data) > _MOST_BYTES:
        raise PlanError(f"plan {path} is larger than {_MOST_BYTES >> 20} MiB: {_ANEW}")
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise PlanError(f"plan {path} is damaged, it is no JSON: {_ANEW}") from None
    found = raw.get("schema") if isinstance(raw, dict) else None
    if found != SCHEMA:
        raise PlanError(
            f"plan {path}: expected a plan of version {SCHEMA}, found {found!r:.40}: {_ANEW}"
        )
    try:
        decision = from_json(Decision, raw, f"plan {path}", PlanError)
    except RecursionError:
        raise PlanError(f"plan {path} is damaged: {_ANEW}") from None
    for one in (decision.chosen.plan, *decision.fallbacks):
        _sound(one, path)
    if decision.max_context < 1:
        raise PlanError(f"plan {path}: max_context is {decision.max_context}: {_ANEW}")
    return decision


def check(decision: Decision, now: Identity, path: Path) -> None:
    """Refuse a decision that was made for something else.

    Raises:
        PlanError: names the difference.

    """
    differs = machine.difference(decision.machine, now.machine)
    if differs:
        raise PlanError(f"plan {path} is of another machine: {differs}: {_ANEW} here")
    if decision.bundle != now.bundle:
        raise PlanError(
            f"plan {path} is of other models: theirs hash to {decision.bundle[:12]!r}, these to"
            f" {now.bundle[:12]}: {_ANEW} for these"
        )


def _sound(plan: Plan, path: Path) -> None:
    """Whether a plan that was read can be one: its names are known, its numbers possible."""
    wrong = None
    if plan.drafter not in drafting.names():
        wrong = f"no drafter {plan.drafter!r:.40}"
    elif plan.schedule not in (SEQUENTIAL, OVERLAPPED):
        wrong = f"no schedule {plan.schedule!r:.40}"
    elif drafting.needs_model(plan.drafter) != (plan.draft is not None):
        wrong = f"drafter {plan.drafter!r} and where its model runs do not go together"
    elif (plan.draft_length or 0) < 0 or (plan.depth is not None and plan.depth < 1):
        wrong = f"drafts of {plan.draft_length} tokens and depth {plan.depth}"
    if wrong:
        raise PlanError(f"plan {path} is damaged: {wrong}: {_ANEW}")
