"""Finds the runtimes: modules and packages beside this one, and those of installed packages."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Collection, Mapping

from edgedec import runtimes
from edgedec.records.adapter import AdapterInfo

GROUP = "edgedec.runtimes"


@functools.cache
def found() -> tuple[Mapping[str, AdapterInfo], tuple[str, ...]]:
    """Return runtimes by name, fastest first, and one line for each that could not be added."""
    from edgedec._support import plugins

    known = {info.name: info for info in built_in()}
    added, problems = plugins.find(GROUP)
    for plugin in added:
        wrong = _wrong(plugin.value, known.values())
        if wrong:
            problems.append(f"{plugin.package}: its runtime {plugin.name!r} is left out: {wrong}")
        else:
            known[plugin.value.name] = plugin.value
    ordered = sorted(known.values(), key=lambda info: info.order)
    return {info.name: info for info in ordered}, tuple(problems)


def built_in() -> list[AdapterInfo]:
    """Return the runtimes that come with edgedec."""
    modules = (module.name for module in pkgutil.iter_modules(runtimes.__path__))
    own = [name for name in modules if name != "registry" and not name.startswith("_")]
    return [importlib.import_module(f"{runtimes.__name__}.{name}").INFO for name in own]


def _wrong(info: object, others: Collection[AdapterInfo]) -> str:
    """Return why a package's runtime conflicts with the others; empty if it does not."""
    if not isinstance(info, AdapterInfo):
        return f"expected an AdapterInfo, got {info!r:.60}"
    if info.name in (other.name for other in others):
        return f"there is a runtime {info.name!r} already"
    formats = {format: other.name for other in others for format in other.formats}
    for format in info.formats:
        if format in formats:
            return f"the runtime {formats[format]!r} runs the format {format!r} already"
    options = {option.name: option for other in others for option in other.options}
    for option in info.options:
        if options.get(option.name, option) != option:
            return f"there is another option {option.name!r} already"
    return ""
