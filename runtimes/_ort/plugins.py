"""Execution providers in separate packages.

Such a package is called ``onnxruntime_ep_...`` (Qualcomm's is older than that) and names its
library and its provider, so none need be known here.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

import onnxruntime as ort

_PREFIX = "onnxruntime_ep_"
_OTHERS = {"onnxruntime_qnn"}


@functools.cache
def register() -> dict[str, str]:
    """Register the providers of all such packages with ONNX Runtime, once.

    Returns:
        Installed packages that did not load, and why.

    """
    if not hasattr(ort, "register_execution_provider_library"):
        return {}
    failed = {}
    for name in _packages():
        try:
            package = importlib.import_module(name)
            provider = package.get_ep_name()
            if provider not in ort.get_available_providers():
                ort.register_execution_provider_library(provider, package.get_library_path())
        except Exception as error:  # any error of another project's package or library
            failed[name] = (str(error).strip() or type(error).__name__).splitlines()[0]
    return failed


def problems() -> list[str]:
    """See ``edgedec.runtimes.registry.Adapter``."""
    return [f"{name} does not load: {reason}" for name, reason in register().items()]


def _packages() -> list[str]:
    names = {module.name for module in pkgutil.iter_modules()}
    return sorted(n for n in names if n.startswith(_PREFIX) or n in _OTHERS)
