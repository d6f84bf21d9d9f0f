"""``edgedec generate --ray``: the prompts of a file on the nodes of a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _batch, _library, _options, _progress, _sampling
from edgedec.cli._terminal import note
from edgedec.generation.own_sampling import of_answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgedec.batch.jobs import Job
    from edgedec.batch.run import Results
    from edgedec.cluster.common import Run


def run(bundle: str, prompts: Path, out: Path, chosen: dict[str, Any], address: str) -> None:
    """Continue all prompts of a file on a cluster, into another file."""
    from edgedec.batch import run as batch
    from edgedec.batch.jobs import read_jobs
    from edgedec.cluster.common import common, decisive
    from edgedec.cluster.connect import check
    from edgedec.loading.build import find_pair

    check(address)
    jobs, options = read_jobs(prompts), _sampling.as_text(_sampling.generate_options(chosen))
    target = _library.path(bundle, chosen["format"])
    opening = _options.open_options(chosen, target)
    own = of_answers(find_pair(target, opening).target.generation)
    answering = _sampling.as_text(_sampling.generate_options(chosen, own))
    shared = common(target, opening, options, answering)
    settings = batch.settings(decisive(shared, chosen["accept"]), options, answering)
    results = batch.Results(out, settings)
    try:
        _batch.note_earlier(out, results, jobs)
        failed, stopped = _decode(shared, jobs, results, chosen["threads"], address), False
    except KeyboardInterrupt:
        failed, stopped = 0, True
    finally:
        results.close()
    _batch.end(failed, len(jobs), stopped=stopped)


def _decode(
    shared: Run, jobs: Sequence[Job], results: Results, threads: int | None, address: str
) -> int:
    """Decode what is not done; return the number of lines with an error."""
    if all(job.id in results.done for job in jobs):
        return 0
    from edgedec.cluster.connect import connected
    from edgedec.cluster.run import Crew

    done = sum(job.id in results.done for job in jobs)
    with connected(address), _progress.stages() as listen:

        def arrived() -> None:
            nonlocal done
            done += 1
            listen("prompts", done, len(jobs))

        listen("prompts", done, len(jobs))
        crew = Crew(shared, results, threads, note, arrived)
        crew.decode(jobs)
    for name, count in crew.made.most_common():
        click.echo(f"{count} of {len(jobs)} on {name}", err=True)
    return crew.failed
