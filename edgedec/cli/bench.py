"""``edgedec bench``: measures how fast a bundle decodes here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec._support.atomic import write_json
from edgedec.cli import _help, _library, _model, _options, _output, _progress, _prompts, _terminal
from edgedec.errors import InputError

if TYPE_CHECKING:
    from edgedec.compare.drafters import DrafterTask


@click.command(cls=_help.LoadCommand)
@_model.model
@_options.options(_options.texts(count=10, least_tokens=2))
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("-s", "--seed", type=int, default=0, show_default=True, help="Random seed.")
@_options.DRAFT_MODEL
@_options.THREADS
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="bench-out",
    show_default=True,
    metavar="DIR",
    help="Folder for the raw records, as JSON lines.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Runs of each text; the median counts.",
)
@click.option(
    "--submit",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Instead compare plain decoding and auto alone, by ten rules, as one JSON to send.",
)
@_options.options(_options.LOAD)
@_options.as_json
def command(
    bundle: str,
    prompts: Path | None,
    count: int,
    out: Path,
    submit: Path | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Compare auto and each single drafter with plain decoding.

    MODEL is what `edgedec run` takes: a folder, a file or a name. All drafters run interleaved in
    one process; on a busy machine only ratios within one run are meaningful. The speed-up is plain
    decoding's seconds per token over the drafter's, without the first round; worst is the lowest
    speed-up of a prompt; identical counts the prompts with the same tokens as plain decoding
    without padding (quantised weights may differ at near-ties, see `edgedec verify`). J/token is
    the whole machine's energy, including prefill, if Linux reports it: processors' counters (as
    root) or a discharging battery. CPU ms/token is the processor time of all threads of edgedec,
    including prefill: a measure of work, not of energy.

    --submit decodes each text at least three times and writes processor, state, versions, hashes
    and every row; docs/submissions.md has the rules.

    \b
    edgedec bench demo
    edgedec bench ./my-bundle --prompts prompts.jsonl --threads 2 --json
    edgedec bench large.gguf --draft small.gguf
    edgedec bench ./my-bundle --submit my-machine.json
    """  # fmt: skip
    from edgedec.compare.drafters import bench_bundle
    from edgedec.hardware import contention

    asked = _asked(bundle, prompts, count, chosen)
    if submit is not None:
        _submit(asked, submit, as_json)
        return
    before = contention.usage()
    with _progress.progress("decoding") as listen:
        found = bench_bundle(asked, out, listen)
    _warn_if_busy(contention.by_others(before, contention.usage()))
    rows = {name: found.summary(name) for name in found.tpot_s}
    if as_json:
        _output.print_json(rows)
        return
    _print(rows)
    click.echo(f"raw records in {out}", err=True)


def _submit(asked: DrafterTask, file: Path, as_json: bool) -> None:
    """Measure by the rules, and write the file to send."""
    from edgedec.compare.submission import remarks, submission

    if not file.parent.is_dir():
        raise InputError(f"--submit {file}: the folder {file.parent} is missing: make it first")
    with _progress.progress("decoding") as listen:
        found = submission(asked, listen)
    write_json(file, found, indent=1)
    for line in remarks(found):
        _terminal.note(f"note: {line}, as the file says")
    summary = found["summary"]
    if as_json:
        _output.print_json(summary)
        return
    if summary["median_ratio"] is None:
        click.echo(f"no prompt could be compared: {summary['failed_rows']} rows failed")
    else:
        click.echo(
            f"auto {summary['median_ratio']:.2f}x plain decoding (median of"
            f" {summary['compared']} of {summary['prompts']} prompts; worst"
            f" {summary['worst_ratio']:.2f}x)"
        )
    click.echo(f"written to {file}", err=True)


def _asked(bundle: str, prompts: Path | None, count: int, chosen: dict[str, Any]) -> DrafterTask:
    """Return what to decode: prompts, to the token limit."""
    from edgedec.compare.drafters import DrafterTask
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.pipeline import GenerateOptions

    bundle = _library.path(bundle, chosen["format"])
    draft = _library.draft_path(chosen["draft_model"], bundle, chosen["format"])
    common = _options.load_options(chosen, draft=draft, plan="none")
    sampling = SamplingParams(temperature=chosen["temperature"], seed=chosen["seed"])
    options = GenerateOptions(chosen["max_new_tokens"], sampling, ignore_eos=True)
    texts = _prompts.named(prompts, count)
    source = prompts.name if prompts is not None else _prompts.described(None, count)
    return DrafterTask(bundle, texts, options, common, chosen["repeats"], source)


def _warn_if_busy(share: float | None) -> None:
    """Say on stderr if other programs used the processor meanwhile."""
    from edgedec.hardware.contention import BUSY

    if share is not None and share > BUSY:
        _terminal.note(
            f"busy machine: other programs used {share:.0%} of the processor's time; the speeds are"
            " too low, and speed-ups less certain: run it again when it is quiet"
        )


def _print(rows: dict[str, Any]) -> None:
    energy = all("joules_per_token" in row for row in rows.values())
    head = (
        f"{'':12}{'tokens/s':>10}{'speed-up':>10}{'worst':>8}{'identical':>12}{'CPU ms/token':>14}"
    )
    click.echo(head + (f"{'J/token':>10}" if energy else ""))
    for name, row in rows.items():
        same = f"{row['identical']} of {row['prompts']}"
        click.echo(
            f"{name:12}{row['tokens_per_second']:10.0f}{row['speedup']:9.2f}x"
            f"{row['worst_ratio']:7.2f}x{same:>12}"
            f"{1000 * row['processor_s_per_token']:14.3g}"
            + (f"{row['joules_per_token']:10.3g}" if energy else "")
        )
