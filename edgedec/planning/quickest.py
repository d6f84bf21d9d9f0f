"""Chooses the device of a target where neither a plan nor the user does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from edgedec.loading import build
from edgedec.loading.build import OpenOptions
from edgedec.planning import remembered
from edgedec.records.plan import Decision
from edgedec.runtimes import registry

# Options that say where a target computes. What is drafted does not matter here: plain decoding
# must write the same text.
_PLACING = ("providers", "device", "gpu_layers", "cores", "weight_memory", "memory")


def on_quickest(bundle: str | Path, options: OpenOptions) -> OpenOptions:
    """Return the options with the device that computes the target fastest, if another one does.

    Args:
        bundle: as ``Pipeline.open`` takes it.
        options: with ``plan="none"``, or a place for the target, they stay.

    Raises:
        BundleError, InputError, RuntimeUnavailable: the target is damaged, or cannot run here.

    """
    placed = [name for name in _PLACING if getattr(options, name) not in (None, ())]
    if options.plan == "none" or placed:
        return options
    plan = remembered.recall(bundle, options.draft_model) if remembered.any_there() else None
    if plan is not None:  # not followed, since the user chose what is drafted
        return _as_planned(plan, options)
    target = build.find_pair(bundle, options).target
    target.admit()
    device = registry.quickest(target.format, target.path, options.of_target(None))
    return options if device is None else dataclasses.replace(options, device=device)


def _as_planned(decision: Decision, options: OpenOptions) -> OpenOptions:
    """Return the options with the plan's kernels for the target, if they change its text."""
    place = decision.chosen.plan.target
    own = registry.of_format(place.format).target_places
    device = next((name for name in (place.device, place.provider) if name in own), None)
    return options if device is None else dataclasses.replace(options, device=device)
