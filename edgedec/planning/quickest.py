"""Chooses the target's device if neither a plan nor the user does."""

from __future__ import annotations

import dataclasses

from edgedec.loading.build import OpenOptions
from edgedec.loading.sources import Pair
from edgedec.records.plan import Decision
from edgedec.runtimes import registry

_PLACING = ("providers", "device", "gpu_layers", "cores", "weight_memory", "memory")


def is_placed(options: OpenOptions) -> bool:
    """Return whether the user chose where the target runs, or in how much memory."""
    return any(getattr(options, name) not in (None, ()) for name in _PLACING)


def on_quickest(pair: Pair, options: OpenOptions, left: Decision | None) -> OpenOptions:
    """Return the options with the device that computes the target's rounds fastest.

    The choice does not depend on the drafter, so that plain decoding gives the same text.

    Args:
        pair: the models that these options load.
        options: unchanged if no other device is faster, with ``plan="none"``, and if the user
            places the target.
        left: a plan for this bundle that is not followed because the user set options that it
            decides; its device is used, as it is for plain decoding.

    Raises:
        BundleError, RuntimeUnavailable: the target is damaged, or cannot run here.

    """
    if options.plan == "none" or is_placed(options):
        return options
    if left is not None:
        place = left.chosen.plan.target
        own = registry.of_format(place.format).target_places
        device = next((name for name in (place.device, place.provider) if name in own), None)
    else:
        target = pair.target
        target.admit()
        device = registry.quickest(target.format, target.path, options.of_target(None))
    return options if device is None else dataclasses.replace(options, device=device)
