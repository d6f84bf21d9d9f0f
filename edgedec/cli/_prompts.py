"""Reads calibration texts from a prompts file, for commands that measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from edgedec.profiling import CalibrationPrompt

option = click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE.jsonl",
    help='Texts like your own to measure on: lines such as {"prompt": "Hello"}, as `edgedec '
    "generate --prompts` reads them; default: a few that come with edgedec.",
)


def read(path: Path | None) -> tuple[CalibrationPrompt, ...] | None:
    """Return the texts and conversations of a prompts file; None without one.

    Raises:
        InputError: not a prompts file, or a prompt is empty.

    """
    if path is None:
        return None
    from edgedec.batch.jobs import read_jobs
    from edgedec.errors import InputError
    from edgedec.profiling import CalibrationPrompt

    jobs = read_jobs(path)
    if not all(job.prompt for job in jobs):
        raise InputError(f"{path}: expected lines with a prompt that is not empty")
    return tuple(
        CalibrationPrompt(job.id, job.prompt)
        if isinstance(job.prompt, str)
        else CalibrationPrompt(job.id, "", tuple(job.prompt))
        for job in jobs
    )
