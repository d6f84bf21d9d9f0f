"""Describes a package for people: its functions, their widths and the cache."""

from __future__ import annotations

from pathlib import Path

from edgedec.coreml.package import Package

_MEANT_FOR = {"slice": "for GPU and CPU", "blend": "for the Neural Engine"}


def describe(path: Path) -> list[str]:
    """Return lines about a package.

    Args:
        path: the ``.mlpackage``, or its ``model.mlmodel``.

    Raises:
        BundleError: it is damaged.

    """
    package = Package.open(path)
    form = str(package.facts.get("form"))
    found = [f"{form} form, meant {_MEANT_FOR.get(form, 'for an unknown device')}"]
    states: dict[str, None] = {}
    for name in package.names:
        for state, type in package.function(name).states.items():
            states[f"{state} {type}"] = None
    names = sorted(package.names, key=lambda name: (name.split("_")[0], len(name), name))
    found.append(f"functions {', '.join(names)}")
    found.append(f"state {', '.join(states)}")
    return found
