"""Facts about the node that a worker runs on, and its turn to open a model there."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from edgedec._support.kept import Folder
from edgedec.errors import InputError
from edgedec.generation.result import Generation
from edgedec.generation.stream import Stream
from edgedec.hardware.machine import cpu_class, cpu_name, package_versions
from edgedec.pipeline import Pipeline
from edgedec.runtimes import registry


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other worker of this user opens a model on this node, and keep them waiting."""
    from filelock import FileLock

    folder = Folder("sent", "").path
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / "turn.lock")
        lock.acquire()
    except OSError as error:
        raise InputError(f"the cache {folder} cannot be used: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def differs(pipeline: Pipeline, run: Mapping[str, Any]) -> str:
    """Return why this pipeline's texts would be others than those of the run; empty if not."""
    held, wanted = pipeline.plan["max_context"], run["max_context"]
    if held != wanted:
        return f"holds {held} tokens of context, the run needs {wanted}: give --max-context {held}"
    if pipeline.plan["kv"] != run["kv"]:
        return f"keeps keys and values as {pipeline.plan['kv']}, the run as {run['kv']}"
    if pipeline.pair.target.hashes() != run["target"]:
        return (
            f"takes the target's files in the format {pipeline.pair.target.format}, the run other"
            " ones: give --format"
        )
    return ""


def kernels(pipeline: Pipeline) -> dict[str, Any]:
    """Return what computed a text: kernels of other kinds round differently."""
    plan = pipeline.plan
    return {
        "format": plan["format"],
        "device": plan["device"],
        "provider": plan["provider"],
        "threads": plan["threads"],
        **_machine(plan["format"]),
    }


@functools.cache
def _machine(format: str) -> dict[str, Any]:
    """Return the facts that do not change while this process lives."""
    packages = package_versions(registry.of_format(format).packages)
    return {"packages": packages, "cpu": cpu_name(), "class": cpu_class()}


def to_end(stream: Stream) -> tuple[Generation, bool]:
    """Decode a text to its end, which nobody stops."""
    for _ in stream:
        pass
    assert stream.result is not None
    return stream.result, False
