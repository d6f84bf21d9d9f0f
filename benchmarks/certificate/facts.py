"""Facts in a certificate: the model's files, the program and the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedec._support.model_path import is_gguf
from edgedec.bundle import Bundle
from edgedec.decoding.drafting import PLAIN
from edgedec.errors import InputError, RuntimeUnavailable
from edgedec.loading.build import OpenOptions
from edgedec.loading.sources import Models
from edgedec.pipeline import Pipeline
from edgedec.records.adapter import AdapterInfo
from edgedec.runtimes import registry


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a certificate compares: every runtime that can decode the model here.

    Attributes:
        options: load options by name: a format, or a format and a device other than its default.
        left_out: a note on each runtime that cannot decode the model.

    """

    options: dict[str, OpenOptions]
    left_out: list[str]


def subjects(bundle: str, options: OpenOptions) -> Subjects:
    """Return each usable format of the target, and each on the devices that are for targets only.

    Such devices (``AdapterInfo.target_places``) are left out if the options place the target.
    """
    there = {source.format for source in Models.find(bundle, options.draft).sources["target"]}
    found = Subjects({}, [])
    for name in registry.formats():
        if name not in there or options.format not in ("auto", name):
            continue
        info = registry.of_format(name)
        if not registry.installed(info.name):
            note = f"{name}: left out, the runtime {info.name} is not installed"
            found.left_out.append(note)
            continue
        own = options.changed(format=name)
        found.options[name] = own
        if options.load.device is None and not options.load.providers:
            _add_devices(found, bundle, own, info)
    return found


def _add_devices(found: Subjects, bundle: str, options: OpenOptions, info: AdapterInfo) -> None:
    """Add the devices that are for targets only, if they can load the target."""
    for device in registry.adapter(info.name).devices():
        if device.name not in info.target_places:
            continue
        name = f"{options.format} on {device.name}"
        there = options.changed(device=device.name)
        try:
            Pipeline.open(bundle, there.changed(drafter=PLAIN)).close()
        except (InputError, RuntimeUnavailable) as error:
            # Without the folders above the model, since a certificate is published.
            reason = str(error).replace(f"{Path(bundle)}{os.sep}", "")
            found.left_out.append(f"{name}: left out, {reason}")
        else:
            found.options[name] = there


def models(bundle: str) -> dict[str, str]:
    """Describe target and draft from the manifest; {} for a GGUF file."""
    if is_gguf(bundle):
        return {}
    return {
        role.role: f"{role.architecture} ({', '.join(_weights(role.variants))})"
        for role in Bundle.open(bundle).roles
    }


def _weights(variants: Any) -> list[str]:
    return [f"{name} {variant.weights}" for name, variant in variants.items()]
