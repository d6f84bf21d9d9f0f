r"""Lossless speculative decoding on small devices.

::

    from edgedec import Pipeline

    with Pipeline.open("demo") as pipeline:
        for event in pipeline.stream("def fibonacci(n):\n", max_new_tokens=64):
            print(event.text, end="")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgedec._support.telemetry import switch_off as _switch_off
from edgedec._version import __version__

if TYPE_CHECKING:
    from edgedec.bundle import Bundle
    from edgedec.decoding.emission import Emission
    from edgedec.decoding.metrics import Metrics
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.errors import EdgedecError
    from edgedec.functions import convert, plan, pull
    from edgedec.generation.asynchronous import AsyncStream
    from edgedec.generation.result import Generation, ScoredToken
    from edgedec.library import Library
    from edgedec.loading.build import OpenOptions
    from edgedec.pipeline import GenerateOptions, Pipeline, Stream

_switch_off()  # before any library that would report is imported

# Imported when first used: `edgedec --help` needs none of them.
_HOMES = {
    "AsyncStream": "edgedec.generation.asynchronous",
    "Bundle": "edgedec.bundle",
    "EdgedecError": "edgedec.errors",
    "Emission": "edgedec.decoding.emission",
    "GenerateOptions": "edgedec.pipeline",
    "Generation": "edgedec.generation.result",
    "Library": "edgedec.library",
    "Metrics": "edgedec.decoding.metrics",
    "OpenOptions": "edgedec.loading.build",
    "Pipeline": "edgedec.pipeline",
    "SamplingParams": "edgedec.decoding.sampling",
    "ScoredToken": "edgedec.generation.result",
    "Stream": "edgedec.pipeline",
    "convert": "edgedec.functions",
    "plan": "edgedec.functions",
    "pull": "edgedec.functions",
}

__all__ = [
    "AsyncStream",
    "Bundle",
    "EdgedecError",
    "Emission",
    "GenerateOptions",
    "Generation",
    "Library",
    "Metrics",
    "OpenOptions",
    "Pipeline",
    "SamplingParams",
    "ScoredToken",
    "Stream",
    "__version__",
    "convert",
    "plan",
    "pull",
]


def __dir__() -> list[str]:
    """Return the public names, which are imported when first used."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'edgedec' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
