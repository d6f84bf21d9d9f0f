"""Measures one model at one place, in the child process of ``children``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from edgedec._support import _sandbox_child
from edgedec._support.fields import from_json, to_json
from edgedec.decoding.drafting.head import state_bytes
from edgedec.decoding.session import HeadModel, Model, Rollback, Session
from edgedec.errors import ProfileError
from edgedec.hardware.pinning import pinned
from edgedec.hardware.resident import resident_bytes
from edgedec.profiling import parity, passes
from edgedec.profiling.children import HEAD, LOGITS, TARGET, MeasurementJob
from edgedec.records.load import LoadOptions
from edgedec.records.profile import Measured, Parity, PassTimes
from edgedec.runtimes import registry

# Tokens beyond the longest context, for the rows that are compared.
_SLACK = 80


def main(task: Mapping[str, Any]) -> Any:
    """Measure ``job`` and return a ``Measured``; rows to compare are written to ``folder``."""
    job = from_json(MeasurementJob, task["job"], "job", ProfileError)
    with pinned(job.place.cores):
        measured, logits = measure(job)
    np.save(Path(task["folder"]) / LOGITS, logits)
    return to_json(measured)


def measure(job: MeasurementJob) -> tuple[Measured, parity.Rows]:
    """Load the model, prefill a text and run passes; return the figures and the rows to compare."""
    # Import the runtime's library first: its memory is not the model's.
    registry.adapter(registry.of_format(job.place.format).name)
    before, begin = resident_bytes(), perf_counter()
    options = job.place.load_options(batch_invariant=job.batch_invariant)
    model = _load(job, options)
    widths = _widths(job, model)
    most = min(model.info.max_context, job.contexts[-1] + max(widths) + _SLACK)
    # Its states are made up, which takes as long as real ones.
    session = model.blank(most) if isinstance(model, HeadModel) else model.open(most)
    load_s = perf_counter() - begin
    times, prefill_s, steady = _at_contexts(session, job, widths)
    # Measured before rows of logits are kept for comparison, which may be large.
    grown = resident_bytes() - before
    grown += state_bytes(model) if isinstance(model, HeadModel) else 0
    info, can = model.info, model.capabilities
    logits = parity.rows(session, job.sample, tree=can.tree and max(widths) > 1)
    measured = Measured(
        role=job.role,
        name=info.name,
        place=job.place,
        times=times,
        prefill_s=prefill_s,
        load_s=load_s,
        rss_bytes=max(0, grown),
        weight_bytes=info.weight_bytes,
        kv_bytes_per_token=info.kv_bytes_per_token,
        max_context=info.max_context,
        vocab_size=info.vocab_size,
        row_widths=can.row_widths,
        # Batch invariance is guaranteed for chains only.
        branches=can.drafted_branches,
        parity=Parity(1.0, 0.0, usable=True),
        steady=steady,
        rolls_back=can.rollback is not Rollback.REPLAY,
        process_bytes=before,
        scratch_bytes_per_token=info.scratch_bytes_per_token,
        shows_states=job.role == TARGET and bool(can.taps),
        state_bytes=info.state_bytes,
        lookup_bytes=info.lookup_bytes,
    )
    return measured, logits


def _load(job: MeasurementJob, options: LoadOptions) -> Model:
    if job.role == HEAD:
        files = [Path(file) for file in job.files]
        return registry.load_head(job.place.format, Path(job.path), files, options)
    return registry.load(job.place.format, Path(job.path), options)


def _widths(job: MeasurementJob, model: Model) -> tuple[int, ...]:
    """Return the widths to measure: the job's, a compiled graph's own, or 1 without drafts."""
    if model.capabilities.rollback is Rollback.REPLAY:
        return (1,)
    return model.capabilities.row_widths or job.widths


def _at_contexts(
    session: Session, job: MeasurementJob, widths: tuple[int, ...]
) -> tuple[tuple[PassTimes, ...], float, bool]:
    """Return pass times by context, prefill seconds per token, and whether all were steady.

    A longer context is left out if its prefill would exceed the budget of all contexts.
    """
    times: list[PassTimes] = []
    chunks: list[float] = []
    steady = True
    for context in job.contexts:
        if context + max(widths) > session.capacity:
            break
        expected = median(chunks) * (context - session.length) if chunks else 0.0
        if expected > job.budget_s * len(job.contexts):
            break
        chunks += passes.prefill(session, context, job.sample)
        swept = passes.sweep(session, widths, job.sample, job.budget_s)
        times.append(swept.times)
        steady &= swept.steady
    if not times:
        raise ProfileError(
            f"a context of {session.capacity} tokens is too short to be measured: expected"
            f" {job.contexts[0] + max(widths)} or more"
        )
    return tuple(times), median(chunks), steady


if __name__ == "__main__":
    _sandbox_child.serve(main)
