"""``python -m benchmarks.report MODEL``: what ``edgedec bench`` measures, as a page of plots."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.questions import bench_questions, has_turns, read_questions
from benchmarks.report import figures, page
from benchmarks.report.observed import record_more
from edgedec.cli._prompts import described, named
from edgedec.compare.drafters import RECORDS, DrafterTask, bench_bundle
from edgedec.compare.interleaved import Comparison
from edgedec.compare.records import Recorder
from edgedec.decoding.sampling import SamplingParams
from edgedec.errors import EdgedecError, InputError
from edgedec.pipeline import GenerateOptions, Prompt

Prompts = Sequence[tuple[str, Prompt]]
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("model", default="demo")
@click.option("--html", type=_FILE, default="report.html", show_default=True, help="The page.")
@click.option("--prompts", type=_FILE, help="JSON lines; default: held-out code.")
@click.option("--count", type=click.IntRange(1), default=10, show_default=True)
@click.option("-n", "--max-new-tokens", "tokens", type=click.IntRange(2), default=128)
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default="bench-out", show_default=True)
def main(
    model: str,
    html: Path,
    prompts: Path | None,
    count: int,
    tokens: int,
    temperature: float,
    out: Path,
) -> None:
    """Compare every drafter with plain decoding, and draw a page of it (extra `report`)."""
    try:
        figures.check()
        if not html.parent.is_dir():
            raise InputError(f"--html {html}: the folder {html.parent} is missing: make it first")
        turns = prompts is not None and has_turns(prompts)
        options = GenerateOptions(tokens, SamplingParams(temperature, seed=0), ignore_eos=not turns)
        source = prompts.name if prompts is not None else described(None, count)
        task = DrafterTask(model, () if turns else named(prompts, count), options, source=source)

        def also(prompts: Prompts, found: Comparison, recorder: Recorder) -> None:
            record_more(model, task.common, prompts, options, found, recorder)

        if turns and prompts:
            bench_questions(task, read_questions(prompts), out, also=also)
        else:
            bench_bundle(task, out, also=also)
        page.write(out / f"{RECORDS}.jsonl", html)
    except EdgedecError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    click.echo(f"page in {html}, raw records in {out}")


if __name__ == "__main__":
    main()
