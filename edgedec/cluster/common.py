"""What all workers of a run have in common, as plain data.

It is settled before any node is asked, from the files and the options alone, so that every node,
and a later run that goes on with the same file, decodes under the same settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from edgedec._version import __version__
from edgedec.batch.run import Decisive
from edgedec.cluster import models
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import InputError
from edgedec.generation.options import GenerateOptions
from edgedec.hardware.device import available_cores
from edgedec.loading.build import find_pair
from edgedec.loading.options import OpenOptions
from edgedec.loading.sources import Pair
from edgedec.memory.budget import check_context
from edgedec.planning.streaming import LEAST_PROCESS
from edgedec.records.load import COMMON

Run = Mapping[str, Any]


def common(
    target: str | Path, options: OpenOptions, text: GenerateOptions, answer: GenerateOptions
) -> Run:
    """Return what every worker is given.

    Args:
        target: the model's path here.
        text, answer: options of texts, and of answers to messages.

    Raises:
        InputError: options that would differ from node to node.
        BundleError: no such model, or it is damaged.

    """
    if str(options.plan) not in ("auto", "none"):
        raise InputError(
            f"--plan {options.plan} is for one machine: with --ray every node follows its own plan"
        )
    if options.corpus is not None:
        raise InputError("--corpus is a file of this machine: leave it out with --ray")
    pair = find_pair(target, options)
    check_context(options.max_context, pair.target.max_context or 1 << 62, "the target")
    described = {"target": models.describe(target)}
    if options.draft is not None:
        described["draft"] = models.describe(options.draft)
    context = _context(pair, options)
    return {
        "version": __version__,
        "models": described,
        "options": _plain(options),
        "text": _fields(text),
        "answer": _fields(answer),
        "target": pair.target.hashes(),
        "max_context": context,
        "kv": options.load.own.get("kv"),
        "bytes": _needed(pair, options, context),
    }


def decisive(run: Run, accept: str | None) -> Decisive:
    """Return what decides the texts of a run."""
    return Decisive(dict(run["target"]), accept, run["max_context"], run["kv"])


def _context(pair: Pair, options: OpenOptions) -> int:
    """Return the context that every node must hold, however much memory it has."""
    given = options.max_context
    if given is None and (options.memory is not None or options.kv_memory is not None):
        raise InputError(
            "--memory and --kv-memory leave each node another context: with --ray give"
            " --max-context as well"
        )
    if given is None and pair.target.max_context is None:
        raise InputError("the model does not say how long its context is: give --max-context")
    return min(one for one in (given, pair.target.max_context) if one is not None)


def _needed(pair: Pair, options: OpenOptions, context: int) -> int:
    """Return the bytes to reserve for a worker: its limit, or weights, caches and process."""
    if isinstance(options.memory, int):
        return options.memory
    sources = [one for one in (pair.target, pair.draft) if one is not None]
    weights = sum(file.stat().st_size for one in sources for file in one.files.values())
    caches = sum((one.kv_bytes_per_token or 0) * context for one in sources)
    return LEAST_PROCESS + weights + caches


def _plain(options: OpenOptions) -> dict[str, Any]:
    """Return the options that were given, by name; the draft's path is another on each node."""
    given = options.chosen()
    given.pop("draft", None)
    if (load := given.pop("draft_load", None)) is not None:
        own = {name: getattr(load, name) for name in COMMON} | load.own
        given |= {f"draft_{name}": value for name, value in own.items() if value not in (None, ())}
    return given


def _fields(options: GenerateOptions) -> dict[str, Any]:
    given = {one.name: getattr(options, one.name) for one in fields(options)}
    return given | {"sampling": asdict(options.sampling)}


def open_options(run: Run, cores: int, draft: str | None) -> OpenOptions:
    """Return the options that a worker opens the pipeline with.

    Args:
        run: as ``common`` returns it.
        cores: that Ray reserves for the worker; fewer than the node has bound its threads.
        draft: the draft model's path on this node, if one was given.

    """
    given = dict(run["options"]) | {"max_context": run["max_context"]}
    if cores < available_cores():
        given.setdefault("threads", cores)
    return OpenOptions(**given, draft=None if draft is None else Path(draft))


def generate_options(given: Mapping[str, Any]) -> GenerateOptions:
    """Return options of texts from their fields."""
    return GenerateOptions(**{**given, "sampling": SamplingParams(**given["sampling"])})
