"""``edgedec bench``: how fast a bundle decodes here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgedec.cli import _model, _options

if TYPE_CHECKING:
    from edgedec.bench.compare import Comparison
    from edgedec.pipeline import Prompt


@click.command(cls=_options.LoadCommand)
@_model.model
@_options.options(_options.texts(count=10, least_tokens=2))
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random choices.")
@click.option(
    "--draft",
    "draft_model",
    type=_options.draft_model,
    metavar="FILE.gguf",
    help="A draft model's file, or a bundle whose target drafts; default: the bundle's own draft.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="CPU threads; default: one per core, fewer for a small model.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="bench-out",
    show_default=True,
    metavar="DIR",
    help="Where the raw records go, as JSON lines.",
)
@_options.options(_options.LOAD)
@_options.as_json
def command(
    bundle: str,
    prompts: Path | None,
    count: int,
    max_new_tokens: int,
    out: Path,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Race every drafter against plain decoding.

    MODEL is a folder, the demo, or a GGUF file. All run interleaved in one process; on a machine
    that does other things as well, only ratios within one run mean anything. A speed-up is plain
    seconds per token over the drafter's, without the first round; worst is the worst prompt's;
    identical counts the prompts with the same tokens as plain decoding without padding (quantised
    weights may differ at near-ties, see `edgedec verify`).

    \b
    edgedec bench demo
    edgedec bench ./my-bundle --prompts prompts.jsonl --threads 2 --json
    edgedec bench large.gguf --draft small.gguf
    """  # fmt: skip
    from edgedec.bench.bundle import bench_bundle
    from edgedec.cli import _output
    from edgedec.cli.verify import default_or_read
    from edgedec.decoding.sampling import SamplingParams
    from edgedec.loading.build import OpenOptions
    from edgedec.pipeline import GenerateOptions

    texts: list[tuple[str, Prompt]] = default_or_read(prompts, count)
    common = OpenOptions(draft_model=chosen["draft_model"], threads=chosen["threads"], plan="none")
    common = _options.load_options(common, chosen)
    sampling = SamplingParams(temperature=chosen["temperature"], seed=chosen["seed"])
    options = GenerateOptions(max_new_tokens=max_new_tokens, sampling=sampling, ignore_eos=True)
    with _output.progress("decoding") as listen:
        found = bench_bundle(bundle, texts, options, out=out, common=common, on_progress=listen)
    if as_json:
        _output.print_json({name: found.summary(name) for name in found.tpot_s})
    else:
        _print(found, out)


def _print(found: Comparison, out: Path) -> None:
    click.echo(f"{'':12}{'tokens/s':>10}{'speed-up':>10}{'worst':>8}{'identical':>12}")
    for name in found.tpot_s:
        row = found.summary(name)
        click.echo(
            f"{name:12}{row['tokens_per_second']:10.0f}{row['speedup']:9.2f}x"
            f"{row['worst_ratio']:7.2f}x{row['identical']:>6} of {row['prompts']}"
        )
    click.echo(f"raw records in {out}", err=True)
