"""``edgedec generate --prompts``: many prompts from a file, into another or to standard output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _library, _options, _output, _sampling
from edgedec.cli._terminal import INTERRUPTED
from edgedec.hardware.energy import EnergyMeter

if TYPE_CHECKING:
    from edgedec.batch.jobs import Job
    from edgedec.batch.run import Results, Sink
    from edgedec.pipeline import GenerateOptions, Generation, Pipeline, Stream


class _Printed:
    """Results that go to standard output."""

    def __init__(self) -> None:
        self.done: set[str] = set()

    def add(self, job: Job, fields: dict[str, Any]) -> None:
        _output.print_json({"id": job.id, **fields})

    def close(self) -> None:
        """Nothing to close."""


def run(bundle: str, prompts: Path, out: Path | None, chosen: dict[str, Any]) -> None:
    """Continue all prompts of a file."""
    from edgedec.batch.jobs import read_jobs
    from edgedec.pipeline import Pipeline

    jobs, options = read_jobs(prompts), _sampling.as_text(_sampling.generate_options(chosen))
    target = _library.path(bundle, chosen["format"])
    with Pipeline.open(target, _options.open_options(chosen, target)) as pipeline:
        answering = _sampling.as_text(_sampling.generate_options(chosen, pipeline.sampling))
        _run_jobs(pipeline, jobs, options, answering, out, chosen["accept"])


def _run_jobs(
    pipeline: Pipeline,
    jobs: list[Job],
    options: GenerateOptions,
    answering: GenerateOptions,
    out: Path | None,
    accept: str | None,
) -> None:
    from edgedec.batch import run as batch

    results: Sink = _Printed()
    if out is not None:
        results = file = batch.Results(out, batch.settings_of(pipeline, options, accept, answering))
        note_earlier(out, file, jobs)

    def decode(stream: Stream) -> tuple[Generation, bool]:
        meter = EnergyMeter()
        finished, stopped = _output.collect(stream)
        sampled = not (options.sampling.greedy and answering.sampling.greedy)
        _output.show_figures(finished, meter, sampled=sampled)
        return finished, stopped

    try:
        failed, stopped = batch.run(pipeline, jobs, results, options, decode, answering)
    except KeyboardInterrupt:  # between two prompts
        failed, stopped = 0, True
    finally:
        results.close()
    end(failed, len(jobs), stopped=stopped)


def note_earlier(out: Path, results: Results, jobs: Sequence[Job]) -> None:
    """Say what earlier runs have done; InputError if that was for other prompts."""
    results.check(jobs)
    there = sum(job.id in results.done for job in jobs)
    if there:
        failed = sum(job.id in results.failed for job in jobs)
        errors = f", of which {failed} are errors" if failed else ""
        click.echo(f"{out} already has {there} of {len(jobs)} results{errors}", err=True)


def end(failed: int, jobs: int, *, stopped: bool) -> None:
    """Say what is left to do; end the program if something is."""
    if stopped:
        click.echo("stopped: run the same command again to continue", err=True)
        raise click.exceptions.Exit(INTERRUPTED)
    if failed:
        click.echo(f"{failed} of {jobs} prompts could not be decoded", err=True)
        raise click.exceptions.Exit(2)
